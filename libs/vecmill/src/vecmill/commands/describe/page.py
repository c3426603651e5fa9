"""The page of `vecmill describe`: what becomes of a model, as JSON values and as lines of text."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vecmill.config import default_cache_dir
from vecmill.directory_layouts.picture_encoders import PREPROCESSOR, PROCESSOR
from vecmill.hardware.cores import available_cores
from vecmill.models import ModelDescription, Pooling, Task
from vecmill.models.description import AsymmetricRoutes, PictureTower
from vecmill.models.outline import ModelOutline
from vecmill.models.stages import Splade
from vecmill.models.weights import count_bytes, fp32_bytes
from vecmill.serving_plan.identity import identify_space
from vecmill.serving_plan.needs import estimate_memory, estimate_start
from vecmill.serving_plan.outcome import ForeseenOutcome, OutcomeKind, list_weights
from vecmill.verification.precision_gate import list_checks

_KINDS: Mapping[OutcomeKind, str] = {
    OutcomeKind.GRAPH: "served: vecmill has a graph of it",
    OutcomeKind.EXPORTED_GRAPH: "served: by the exported graph in its directory",
    OutcomeKind.TRANSFORMERS: "served: on the torch engine, with transformers",
    OutcomeKind.OWN_CODE: "served: on the torch engine, with the model's own code",
    OutcomeKind.REFUSED: "refused",
    OutcomeKind.UNKNOWN: "unknown",
}
_OUTPUTS: Mapping[Task, str] = {
    Task.EMBED: "an embedding of each text",
    Task.RERANK: "a score of each pair of query and document",
    Task.CLASSIFY: "a score of each label for each text",
    Task.CLASSIFY_TOKENS: "a score of each label for each token",
    Task.SPARSE: "a sparse embedding of each text",
    Task.MULTI_VECTOR: "an embedding of each token",
}
_SHARED_SETTINGS = ("modules.json", "router_config.json", "config_sentence_transformers.json", "vecmill.json")
_FOLDER_SETTINGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json")
_16_BITS = ("bfloat16", "float16")


def describe_outcome(outline: ModelOutline, outcome: ForeseenOutcome) -> dict[str, Any]:
    """Return the page as values for JSON. The keys of what is not known are missing."""
    page: dict[str, Any] = {
        "outcome": outcome.kind,
        "reason": outcome.reason,
        "unchecked": list(outcome.unchecked),
        "trust_remote_code": _name_trust(outline, outcome),
        "name": outline.location.name,
        "directory": str(outline.directory),
        "size_bytes": sum(outline.sizes.values()),
        "missing_bytes": outline.missing_bytes,
    }
    if outcome.plan is not None:
        page |= {"engine": outcome.plan.engine, "precision": outcome.plan.precision or "fp32"}
    if outcome.description is not None:
        page |= _describe_settings(outcome.description)
        page |= _describe_needs(outcome, outline.unread)
        if outcome.description.router is not None:
            page["queries"] = _describe_queries(outcome.description.router)
        if outcome.description.pictures is not None:
            page["pictures"] = _describe_pictures(outcome.description.pictures)
        page["reads"] = _list_read_files(outcome.description)
        checks = _list_precision_checks(outcome)
        if checks:
            page["precision_checks"] = checks
    return page


def describe_space_of(outcome: ForeseenOutcome) -> dict[str, Any]:
    """Return the space of a served model and its parts, for the page. Reads all weights once.

    Raises the errors of a start for weights that are broken.
    """
    assert outcome.description is not None
    found = identify_space(outcome.description, default_cache_dir(), cores=available_cores())
    return {"space": found.digest, **found.to_json()}


def _list_precision_checks(outcome: ForeseenOutcome) -> list[dict[str, Any]]:
    """Return what the first starts in reduced precisions have measured on this machine."""
    if not outcome.is_served or outcome.description is None:
        return []
    found = list_checks(outcome.description, cache_dir=default_cache_dir())
    return [
        {
            "engine": each.engine,
            "precision": each.precision,
            "device": each.device,
            "min_cosine": each.min_cosine,
            **asdict(each.result),
        }
        for each in found
    ]


def _name_trust(outline: ModelOutline, outcome: ForeseenOutcome) -> str:
    if outcome.asks_trust:
        return "needed"
    return "used" if outcome.kind is OutcomeKind.OWN_CODE else "not needed"


def _describe_settings(description: ModelDescription) -> dict[str, Any]:
    return {
        "task": description.task,
        "architecture": description.architecture,
        "dimensions": description.dim,
        "longest_input": description.max_tokens,
        "cut": "the beginning" if description.truncate_left else "the end",
        "vocabulary": description.vocab_size,
        "stages": [type(stage).__name__ for stage in description.stages],
        "pooling": _list_pooling(description),
        "normalised": description.normalize,
        "prompts": dict(sorted(description.prompts.items())),
        "default_prompt": description.default_prompt_name,
        "outputs": list(description.tasks),
        "labels": [] if description.head is None else list(description.head.labels),
        "assumptions": list(description.assumptions),
    }


def _describe_pictures(tower: PictureTower) -> dict[str, Any]:
    settings = tower.settings
    return {
        "size": [settings.width, settings.height],
        "patches": tower.encoder.max_tokens,
        "precision": "fp32" if tower.encoder.exported_graph is None else "the precision of its graph",
    }


def _describe_queries(router: AsymmetricRoutes) -> dict[str, Any]:
    query = router.query
    return {
        "are_looked_up": query.is_table,
        "architecture": query.architecture,
        "longest_input": query.max_tokens,
        "vocabulary": query.vocab_size,
        "pooling": _list_pooling(query),
        "default_route": router.default,
    }


def _list_pooling(description: ModelDescription) -> list[str]:
    pooled = [
        mode.value for stage in description.stages if isinstance(stage, Pooling) for mode in stage.modes
    ]
    splade = ["splade" for stage in description.stages if isinstance(stage, Splade)]
    return pooled + splade


def _describe_needs(outcome: ForeseenOutcome, unread: frozenset[Path]) -> dict[str, Any]:
    """Return parameters, memory and start times; none of them if the files have no tensors to count."""
    assert outcome.description is not None
    weights = list_weights(outcome.description)
    stored = count_bytes(weights)
    is_counted = unread.isdisjoint(weights)
    size = fp32_bytes(weights) if is_counted else _guess_fp32_bytes(outcome.description, stored)
    if not size:
        return {}
    needs: dict[str, Any] = {"parameters": size // 4, "parameters_are_counted": is_counted}
    if outcome.plan is not None and outcome.plan.engine != "onnx":
        return needs  # no rule was measured for other engines
    start = estimate_start(size, is_converted=stored < 0.75 * size)
    memory = estimate_memory(size / 4)
    # The precision of an exported graph is its own, and encoders of pictures compute in fp32.
    if outcome.kind is OutcomeKind.EXPORTED_GRAPH or outcome.description.pictures is not None:
        memory = {"onnx fp32": memory["onnx fp32"]}
    return needs | {
        "memory": {
            name: {"reserve_mb": math.ceil(need.reserve_mb), "limit_mb": math.ceil(need.limit_mb)}
            for name, need in memory.items()
        },
        "first_start_s": round(start.first_s, 1),
        "later_start_s": round(start.later_s, 1),
    }


def _guess_fp32_bytes(description: ModelDescription, stored: int) -> int:
    """Return the size in fp32 of tensors in files of `stored` bytes, of the type that config.json names."""
    names = (description.config.get("dtype"), description.config.get("torch_dtype"))
    return stored * (2 if any(name in _16_BITS for name in names) else 1)


def _list_read_files(description: ModelDescription) -> list[str]:
    """Return the files that a start reads: relative to the model, or whole for those of another folder."""
    read = {*list_weights(description), *(side.tokenizer_file for side in description.text_sides)}
    if description.adapter is not None:
        read |= {description.adapter.config_file, description.adapter.weights_file}
    if description.chat_template is not None:
        read.add(description.chat_template.file)
    folders = {path.parent for path in read} | {
        path for path in description.directory.glob("*_*") if path.is_dir()
    }
    read |= {description.directory / name for name in _SHARED_SETTINGS}
    read |= {folder / name for folder in folders for name in _FOLDER_SETTINGS}
    if description.pictures is not None:
        read |= {folder / name for folder in folders for name in (PREPROCESSOR, PROCESSOR)}
    read |= {path for folder in folders for path in folder.glob("sentence_*_config.json")}
    read |= {path.with_name(f"{name}.index.json") for path in read for name in _index_names(path)}
    own = description.directory
    names = (path.relative_to(own) if path.is_relative_to(own) else path for path in read if path.is_file())
    return sorted(map(str, names))


def _index_names(path: Path) -> tuple[str, ...]:
    return ("model.safetensors", "pytorch_model.bin") if path.suffix in (".safetensors", ".bin") else ()


def lay_out(page: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a page."""
    for label, value in _label(page):
        yield f"{label:<15} {value}" if len(label) >= 15 else f"{label:<15}{value}"


def _label(page: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "name", page["name"]
    yield "directory", page["directory"]
    yield "outcome", _KINDS[page["outcome"]]
    if page["reason"]:
        yield "reason", page["reason"]
    for check in page["unchecked"]:
        yield "not checked", f"{check}: known when the model is loaded"
    yield "own code", _TRUST[page["trust_remote_code"]]
    if "task" in page:
        yield from _label_settings(page)
    if "engine" in page:
        yield "engine", f"{page['engine']} in {page['precision']}"
    missing = f", {_show_mb(page['missing_bytes'])} to download" if page["missing_bytes"] else ""
    yield "size", f"{_show_mb(page['size_bytes'])}{missing}"
    if "parameters" in page:
        about = "" if page["parameters_are_counted"] else "about "
        yield "parameters", f"{about}{page['parameters'] / 1e6:.1f} million"
    yield from _label_needs(page)
    for check in page.get("precision_checks", ()):
        yield "checked", _show_check(check)
    if "reads" in page:
        yield "reads", ", ".join(page["reads"])
    if "space" in page:
        yield "space", page["space"]
        for name, digest, about in (*page["parts"], *page["heads"]):
            yield f"  {name}", f"{digest}  {about}"


_TRUST: Mapping[str, str] = {
    "needed": "needed; --trust-remote-code allows it",
    "used": "is run, as --trust-remote-code allows",
    "not needed": "not needed",
}


def _label_settings(page: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "task", page["task"]
    yield "architecture", page["architecture"]
    yield "dimensions", str(page["dimensions"])
    yield "longest input", f"{page['longest_input']} tokens"
    yield "longer texts", f"{page['cut']} is cut off"
    yield "vocabulary", f"{page['vocabulary']} tokens"
    yield "stages", ", ".join(page["stages"]) or "none"
    yield "pooling", ", ".join(page["pooling"]) or "none"
    yield "normalised", "yes" if page["normalised"] else "no"
    yield "prompts", ", ".join(page["prompts"]) or "none"
    if page["default_prompt"]:
        yield "default prompt", page["default_prompt"]
    yield "outputs", "; ".join(_OUTPUTS[task] for task in page["outputs"])
    for assumption in page["assumptions"]:
        yield "assumed", assumption
    if "pictures" in page:
        yield "pictures", _show_pictures(page["pictures"])
    if "queries" in page:
        yield "queries", _show_queries(page["queries"])
        yield "default route", page["queries"]["default_route"] or "none: each request names its purpose"


def _show_pictures(pictures: Mapping[str, Any]) -> str:
    size = " x ".join(map(str, pictures["size"]))
    return f"resized to {size} pixels, {pictures['patches']} patches, in {pictures['precision']}"


def _show_queries(queries: Mapping[str, Any]) -> str:
    how = "looked up in a table" if queries["are_looked_up"] else f"an encoder, {queries['architecture']}"
    return f"{how}; {queries['vocabulary']} tokens, longest input {queries['longest_input']} tokens"


def _label_needs(page: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "memory" not in page:
        yield "memory", "not estimated: docs/choosing.md has no rule for it"
        return
    for name, need in page["memory"].items():
        where = "" if name.endswith(" fp32") else ", on processors that have it"
        yield "memory", f"{name}{where}: reserve {need['reserve_mb']} MB, limit {need['limit_mb']} MB"
    yield "first start", f"about {page['first_start_s']} s on two cores"
    yield "later starts", f"about {page['later_start_s']} s"


def _show_check(check: Mapping[str, Any]) -> str:
    device = "" if check["device"] == "any" else f", {check['device']}"
    return (
        f"{check['precision']} on {check['engine']}{device}: the lowest cosine with fp32 over "
        f"{check['texts']} texts was {check['worst_cosine']:.4f}, and the minimum is {check['min_cosine']:g}"
    )


def _show_mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
