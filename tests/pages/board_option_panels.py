"""The panels of the Grafana board whose series need an option or a device. Their rows are collapsed."""

from pages.board_queries import OF_MODEL, ON, Look, Panel, Query, Unit, rate

CACHE_PANELS = (
    Panel(
        "Texts in the embedding cache",
        "Texts whose embedding was kept, by the place where it was found, and texts that were computed.",
        Unit.EACH_SECOND,
        (
            Query(
                f"sum by (model, place) ({rate('vecmill_result_cache_hits_total')})", "{{model}}, {{place}}"
            ),
            Query(f"sum by (model) ({rate('vecmill_result_cache_misses_total')})", "{{model}}, computed"),
        ),
    ),
    Panel(
        "Size of the embedding cache",
        "Processes that share a folder each report the size of its file.",
        Unit.BYTES,
        (Query(f"max by (instance, place) (vecmill_result_cache_bytes{{{ON}}})", "{{instance}}, {{place}}"),),
    ),
    Panel(
        "Results that were not kept on disk",
        "By reason: the disk is full, fails or is too slow, or a record or the file was damaged.",
        Unit.EACH_SECOND,
        (Query(f"sum by (reason) ({rate('vecmill_result_cache_drops_total', ON)})", "{{reason}}"),),
    ),
)

# The panel of on-demand loading, which has data with a memory budget only.
LOADS = "Loads of models"
ON_DEMAND_PANELS = (
    Panel(
        LOADS,
        "On-demand loads of models, in a second, by outcome. Many loads of few models mean that the "
        "memory budget is too small for them.",
        Unit.EACH_SECOND,
        (Query(f"sum by (model, outcome) ({rate('vecmill_model_loads_total')})", "{{model}}, {{outcome}}"),),
    ),
)

BATCH_API_PANELS = (
    Panel(
        "Lines of batches",
        "Requests of OpenAI's Batch API that ended, by outcome. dropped: the batch was cancelled, expired, "
        "or reached a limit on stored bytes.",
        Unit.EACH_SECOND,
        (Query(f"sum by (outcome) ({rate('vecmill_batch_api_lines_total', ON)})", "{{outcome}}"),),
    ),
    Panel(
        "Ended batches",
        "Batches that ended in the shown time, by status.",
        Unit.COUNT,
        (
            Query(
                f"sum by (status) (increase(vecmill_batch_api_batches_total{{{ON}}}[$__range]))",
                "{{status}}",
            ),
        ),
        Look.TABLE,
    ),
)

KEY_PANELS = (
    Panel(
        "Tokens by key",
        "Tokens of complete work, by the owner of the API key. Keys of --api-key have no name.",
        Unit.EACH_SECOND,
        (Query(f"sum by (key) ({rate('vecmill_key_tokens_total')})", "{{key}}"),),
        Look.STACK,
    ),
    Panel(
        "Texts by key",
        "Texts of complete work, by the owner of the API key.",
        Unit.EACH_SECOND,
        (Query(f"sum by (key) ({rate('vecmill_key_texts_total')})", "{{key}}"),),
        Look.STACK,
    ),
    Panel(
        "Tokens by key and model in the shown time",
        "For bills: the increase over the time range of the board.",
        Unit.COUNT,
        (Query(f"sum by (key, model) (increase(vecmill_key_tokens_total{{{OF_MODEL}}}[$__range]))", ""),),
        Look.TABLE,
    ),
)

GPU_PANELS = (
    Panel(
        "GPU memory",
        "Memory in use on the GPU by all processes, as a fraction of its memory.",
        Unit.SHARE,
        (
            Query(
                f"vecmill_gpu_memory_used_bytes{{{ON}}} / vecmill_gpu_memory_total_bytes{{{ON}}}",
                "{{instance}}, GPU {{gpu}}",
            ),
        ),
    ),
    Panel(
        "GPU use",
        "The fraction of the time in which the GPU runs a kernel.",
        Unit.SHARE,
        (Query(f"vecmill_gpu_busy_ratio{{{ON}}}", "{{instance}}, GPU {{gpu}}"),),
    ),
)
