"""The groups of options in `vecmill serve --help`, in the order in which people need them."""

from collections.abc import Mapping

import click

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Models": ("alias", "task", "strict", "trust_remote_code", "cache_dir"),
    "Engine and hardware": ("engine", "precision", "device", "cores", "processes", "core_weight", "hang_s"),
    "Address": ("host", "port", "uds", "uds_mode", "fd", "url_prefix"),
    "Keys and browsers": (
        *("api_key", "api_key_file", "metrics_key", "admin_key_file"),
        *("cors_origin", "allowed_host", "console"),
    ),
    "On-demand loading": ("memory_budget_mib", "model_keep_alive_s"),
    "Requests and answers": (
        *("on_long_input", "token_ids", "rerank_document", "image_urls", "timeout_s"),
        *("max_inputs", "max_pictures"),
        *("max_text_characters", "max_request_characters", "max_request_tokens", "max_counted_characters"),
    ),
    "Queue and batches": (
        *("max_batch_tokens", "max_queue_tokens", "max_queue_texts", "target_wait_s"),
        *("bulk_s", "interactive_weight"),
    ),
    "Connections": (
        *("max_connections", "max_connection_age_s", "keep_alive_s", "max_buffered_bytes"),
        *("max_body_bytes", "max_header_bytes", "header_timeout_s", "body_timeout_s", "write_timeout_s"),
    ),
    "Start and stop": ("config_file", "lame_duck_s", "drain_s"),
    "Embedding cache": ("result_cache_memory_bytes", "result_cache_dir", "result_cache_disk_bytes"),
    "Batch API": (
        *("batch_dir", "batch_keep_s", "max_batch_lines", "max_open_batches"),
        *("max_file_bytes", "max_stored_bytes", "upload_timeout_s"),
    ),
    "Logs, metrics and traces": ("log_level", "log_format", "access_log", "metric_aliases", "tracing"),
}


class GroupedCommand(click.Command):
    """A command whose help has its options in groups. Options without a group come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = {each.name: each.get_help_record(ctx) for each in options}
        for title, names in GROUPS.items():
            _write(formatter, title, [records.pop(name, None) for name in names])
        _write(formatter, "Other options", list(records.values()))


def _write(formatter: click.HelpFormatter, title: str, records: list[tuple[str, str] | None]) -> None:
    found = [record for record in records if record is not None]
    if found:
        with formatter.section(title):
            formatter.write_dl(found)
