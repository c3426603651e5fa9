"""What a recording leaves open, and how an answer is written down.

Left open are the words of messages and descriptions, which may change, ids that are random, and what no test
can hold still. Everything else is recorded as it is.
"""

import base64
import json
import re
from typing import Any

import httpx
import numpy as np

from recorded.cases import Case

MESSAGE, TEXT, LENGTH, TIME, UNSURE = "<message>", "<text>", "<length>", "<time>", "<unsure>"
OF_THE_MACHINE = "<of the machine>"
# The id that the request was sent with.
SENT = "<sent>"

# Strings under these keys are sentences for people: of errors, of problems in the input of a batch.
_MESSAGES = frozenset({"message", "detail", "error"})
# The same in the description of the API.
_DESCRIPTIONS = frozenset({"description", "summary"})

# Numbers under these keys follow the cores of the machine.
_COUNTS_OF_THE_MACHINE = frozenset({"total_slots"})

# Headers of files that are sent from the disk: they tell when the file was written there.
_OF_THE_DISK = frozenset({"last-modified", "etag"})

# Files of the page in /docs, which are another package's: their size changes with its version.
_FOREIGN = ("/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css")

# Random ids by their shape, and how they are written instead. What is random becomes the number of its first
# appearance in a configuration; what is counted, such as the end of a request's id, stays.
_RANDOM = re.compile(
    r"(?<=file-)[0-9a-f]{24}|(?<=batch_)[0-9a-f]{32}|(?<=batch_req_)[0-9a-f]{32}|\b[0-9a-f]{12}(?=-[0-9a-f]+\b)"
)

# Keys whose strings are rows in base64, where a case says that there are any.
_ROW_KEYS = frozenset({"", "embedding", "embeddings", "data", "base64"})


class Ids:
    """The random ids of one configuration, numbered as they appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def rename(self, text: str) -> str:
        """`text` with a number in place of each id."""
        return _RANDOM.sub(
            lambda found: f"#{self._numbers.setdefault(found[0], len(self._numbers) + 1)}", text
        )


def write_answer(case: Case, answer: httpx.Response, ids: Ids, digits: int | None) -> dict[str, Any]:
    """An answer as it is recorded, its floats rounded to `digits` if that is a number."""
    body = _read_body(case, answer)
    # Of the OpenAPI document some cases keep parts alone, which have no words.
    is_document = answer.is_success and case.path.endswith(("/metrics", "/openapi.json"))
    is_exact = case.method != "HEAD" and not case.keep and not is_document and not _is_open(body)
    headers = [_write_header(name, value, is_exact) for name, value in answer.headers.multi_items()]
    written = {"status": answer.status_code, "headers": sorted(map(ids.rename, headers)), "body": body}
    sent = answer.request.headers.get("x-request-id") if not case.raw else None
    text = ids.rename(json.dumps(written))
    renamed: dict[str, Any] = json.loads(text if sent is None else text.replace(sent, SENT))
    return renamed if digits is None else {**renamed, "body": _round(renamed["body"], digits)}


def _write_header(name: str, value: str, is_exact: bool) -> str:
    if name == "content-length" and not is_exact:
        value = LENGTH
    return f"{name}: {'<of the disk>' if name in _OF_THE_DISK else value}"


def _read_body(case: Case, answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    if case.path.endswith(_FOREIGN):
        return TEXT
    try:
        documents = [json.loads(answer.content)]
        is_lines = False
    except ValueError:
        try:
            documents = [json.loads(line) for line in answer.content.splitlines()]
            is_lines = True
        except ValueError:
            return answer.text
    masked = [_mask(_decode_rows(document, case.base64), _words(case)) for document in documents]
    if case.keep:
        return {place: find_place(masked[0], place) for place in case.keep}
    return {"lines": masked} if is_lines else masked[0]


def _words(case: Case) -> frozenset[str]:
    return _DESCRIPTIONS if case.path.endswith("/openapi.json") else _MESSAGES


def _mask(value: Any, words: frozenset[str]) -> Any:
    mask = TEXT if words is _DESCRIPTIONS else MESSAGE
    if isinstance(value, dict):
        return {name: _mask_item(name, item, words, mask) for name, item in value.items()}
    return [_mask(item, words) for item in value] if isinstance(value, list) else value


def _mask_item(name: str, item: Any, words: frozenset[str], mask: str) -> Any:
    if name in _COUNTS_OF_THE_MACHINE and isinstance(item, int):
        return OF_THE_MACHINE
    return mask if name in words and isinstance(item, str) else _mask(item, words)


def _decode_rows(value: Any, dtype: str | None, key: str = "") -> Any:
    """Rows in base64 as numbers; `key` is the nearest one above."""
    if dtype is None:
        return value
    if isinstance(value, dict):
        return {name: _decode_rows(item, dtype, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_decode_rows(item, dtype, key) for item in value]
    if isinstance(value, str) and key in _ROW_KEYS:
        return {dtype: np.frombuffer(base64.b64decode(value, validate=True), np.dtype(dtype)).tolist()}
    return value


def find_place(document: Any, place: str) -> Any:
    """What stands at `place`: keys and places in lists with ` > ` between them."""
    for key in place.split(" > "):
        document = document[int(key) if isinstance(document, list) else key]
    return document


def _is_open(value: Any) -> bool:
    """Whether an equal answer may have another length: it has words, ids or floats in it."""
    if isinstance(value, dict):
        return any(map(_is_open, value.values()))
    if isinstance(value, list):
        return any(map(_is_open, value))
    return isinstance(value, float) or value in (MESSAGE, TEXT, OF_THE_MACHINE)


def _round(value: Any, digits: int) -> Any:
    if isinstance(value, dict):
        return {name: _round(item, digits) for name, item in value.items()}
    if isinstance(value, list):
        return [_round(item, digits) for item in value]
    return round(value, digits) if isinstance(value, float) else value


# Metrics.

# Families whose values are seconds of a clock that nothing holds still: that of whole HTTP requests.
HTTP_TIMES = frozenset(
    {
        "vecmill_http_request_duration_seconds",
        "http_request_duration_seconds",
        "http_request_duration_highr_seconds",
        "te_request_duration",
        "vllm:e2e_request_latency_seconds",
    }
)
# The same of the models' clock, where a configuration lets it run.
MODEL_TIMES = frozenset({"vecmill_queue_wait_seconds", "vecmill_inference_seconds", "vecmill_queue_seconds"})
# How texts were put into engine calls, which is chance where several requests run at once.
BATCHING = frozenset(
    {
        "vecmill_batch_texts",
        "vecmill_batch_tokens",
        "vecmill_batch_padding_share",
        "vecmill_computed_tokens_total",
        "vecmill_inference_seconds",
        "vecmill_queue_wait_seconds",
        "vecmill_texts_joined_total",
        "vecmill_tokens_total",
    }
)
# Families about the machine and its packages. They are left out.
_OF_THE_MACHINE = re.compile("process_.*|vecmill_build_info|vecmill_memory_.*|vecmill_buffered_bytes_limit")
# When a series began: families that Prometheus' own package adds to each of ours. They are left out.
_CREATED = "_created"

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def write_metrics(exposition: str, *, times: frozenset[str], chance: frozenset[str]) -> dict[str, Any]:
    """An exposition as it is recorded: for each family its type, and its series in their order.

    The series of a histogram are lists: the counts of its buckets, its count and its sum, in the order in
    which they are exposed; one that has counted nothing is 0. Of the families in `times` the values are left
    open, but not how often was measured; of those in `chance` all values.
    """
    families: dict[str, Any] = {}
    family = ""
    for line in exposition.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            if not _is_left_out(family):
                families[family] = {"type": kind, "series": {}}
        elif not line.startswith("#") and not _is_left_out(family):
            _add_sample(families[family], family, line)
    for name, found in families.items():
        for labels, values in found["series"].items():
            if name in chance:
                found["series"][labels] = UNSURE
            elif name in times:
                found["series"][labels] = [TIME, values[-2]] if isinstance(values, list) else TIME
            elif isinstance(values, list) and not any(values):
                found["series"][labels] = 0
        # In no order of its own: that in which models happened to be loaded.
        found["series"] = dict(sorted(found["series"].items()))
    return families


def _is_left_out(family: str) -> bool:
    return family.endswith(_CREATED) or _OF_THE_MACHINE.fullmatch(family) is not None


def _add_sample(family: dict[str, Any], name: str, line: str) -> None:
    found = _SAMPLE.fullmatch(line)
    assert found is not None, line
    labels = dict(_LABEL.findall(found["labels"] or ""))
    bound, value = labels.pop("le", None), _read_number(found["value"])
    series = ",".join(f"{label}={of}" for label, of in labels.items())
    if family["type"] != "histogram":
        assert found["name"] == name, line
        family["series"][series] = value
        return
    if bound is None:
        assert found["name"] in (f"{name}_sum", f"{name}_count"), line
    elif bound not in family.setdefault("le", "").split():
        family["le"] = f"{family['le']} {bound}".lstrip()
    family["series"].setdefault(series, []).append(value)


def _read_number(text: str) -> float:
    """A value of Prometheus, whole ones as a whole number."""
    value = float(text)
    return int(value) if value.is_integer() else value
