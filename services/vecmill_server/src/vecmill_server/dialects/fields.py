"""Fields that several families have in common, under all the names that they give them."""

import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vecmill.errors import InvalidRequest
from vecmill.reading import Purpose, Reading, Truncation
from vecmill.rows import RowKind
from vecmill.types import ClassifyResult, JsonValue, RerankResult, TextOrIds
from vecmill_server.dialects import Document, ReadIds
from vecmill_server.documents import (
    LARGEST_WHOLE_NUMBER,
    kind_of,
    read_count,
    read_items,
    read_optional_flag,
    read_string,
    read_text,
)
from vecmill_server.errors import EmptyInput

T = TypeVar("T")

# The kinds of search that Jina's models know; each has queries and passages.
_SEARCHES = ("retrieval", "code", "nl2code", "code2code", "code2nl", "code2completion", "qa")

# What Cohere, Jina, Voyage, Nomic, Nvidia and Google call the purposes of a text.
PURPOSES: Mapping[str, Purpose] = MappingProxyType(
    {
        "query": Purpose.QUERY,
        "search_query": Purpose.QUERY,
        "retrieval_query": Purpose.QUERY,
        "code_retrieval_query": Purpose.QUERY,
        "question_answering": Purpose.QUERY,  # of Google's: the question, whose answers are documents
        "fact_verification": Purpose.QUERY,
        **{f"{search}.query": Purpose.QUERY for search in _SEARCHES},
        "document": Purpose.DOCUMENT,
        "passage": Purpose.DOCUMENT,
        "search_document": Purpose.DOCUMENT,
        "retrieval_document": Purpose.DOCUMENT,
        **{f"{search}.passage": Purpose.DOCUMENT for search in _SEARCHES},
        "classification": Purpose.CLASSIFICATION,
        "clustering": Purpose.CLUSTERING,
        "separation": Purpose.CLUSTERING,
        "similarity": Purpose.SIMILARITY,
        "text-matching": Purpose.SIMILARITY,
        "semantic_similarity": Purpose.SIMILARITY,
    }
)

# Cohere's words for what becomes of long texts, which say which end is cut off.
_CUTS: Mapping[str, Truncation] = MappingProxyType(
    {
        "none": Truncation(is_allowed=False),
        "start": Truncation(keeps_end=True),
        "end": Truncation(keeps_end=False),
        "true": Truncation(),
        "false": Truncation(is_allowed=False),
    }
)
_BASE64 = "base64"

# What Cohere and Jina call the types of rows: kinds of numbers, and base64 of 32-bit floats.
ROW_TYPES: tuple[str, ...] = (*map(str, RowKind), _BASE64)

_SIDES: Mapping[str, bool] = MappingProxyType({"left": True, "right": False})


def read_reading(document: Document, *, purpose: str = "input_type") -> Reading:
    """Which prompt goes before the texts, and what becomes of long ones.

    `purpose` is the field that says what the texts are for. Raises `InvalidRequest`, as all that read do.
    """
    return Reading(
        prompt_name=read_string(document, "prompt_name"),
        prompt=read_string(document, "prompt"),
        purpose=read_purpose(document, purpose),
        truncation=read_truncation(document),
    )


def read_purpose(document: Document, name: str) -> Purpose | None:
    """What texts are for, in any of the words for it."""
    value = read_string(document, name)
    if value is None:
        return None
    if value.lower() == "image":
        raise InvalidRequest(f"`{name}` is image: this server reads text alone.", field=name)
    if value.lower() not in PURPOSES:
        raise InvalidRequest(f"`{name}` must be one of: {', '.join(PURPOSES)}.", field=name)
    return PURPOSES[value.lower()]


def read_truncation(document: Document) -> Truncation:
    """What becomes of long texts: `truncate` or `truncation`, a side of them, and a length of one's own."""
    cuts = [_read_cut(document, name) for name in ("truncate", "truncation")]
    cut = _first(cuts) or Truncation()
    keeps_end = _read_side(document)
    return Truncation(
        cut.is_allowed, cut.keeps_end if keeps_end is None else keeps_end, _read_limit(document)
    )


def _first(values: Iterable[T | None]) -> T | None:
    """The first that is not `None`. All have been read by then: a mistake in any of them is refused."""
    return next((value for value in values if value is not None), None)


def _read_cut(document: Document, name: str) -> Truncation | None:
    value = document.get(name)
    value = str(value).lower() if isinstance(value, bool) else value
    if value is None:
        return None
    if not isinstance(value, str) or value.lower() not in _CUTS:
        raise InvalidRequest(f"`{name}` must be true, false, NONE, START or END.", field=name)
    return _CUTS[value.lower()]


def _read_side(document: Document) -> bool | None:
    sides = []
    for name in ("truncation_direction", "truncation_side"):
        value = read_string(document, name)
        if value is not None and value.lower() not in _SIDES:
            raise InvalidRequest(f"`{name}` must be Left or Right: the end that is cut off.", field=name)
        sides.append(None if value is None else _SIDES[value.lower()])
    return _first(sides)


def _read_limit(document: Document) -> int | None:
    name = "truncate_prompt_tokens"
    if document.get(name) == -1:  # as long as the model reads
        return None
    return read_count(document, name)


def read_inputs(document: Document, name: str, read_ids: ReadIds) -> tuple[TextOrIds, ...]:
    """A text, a list of texts, or the same as token ids.

    A list of numbers is one text. A text may also be `{"text": ...}`, as Jina's clients write it.
    """
    value = document.get(name)
    if isinstance(value, str | dict):
        return (_read_input(value, name, read_ids),)
    items = read_items(document, name, "a string, or a list of strings")
    if type(items[0]) is int:  # one text, as ids
        return (read_ids(read_token_ids(items, name), name),)
    return tuple(_read_input(item, f"{name}[{index}]", read_ids) for index, item in enumerate(items))


def _read_input(item: JsonValue, field: str, read_ids: ReadIds) -> TextOrIds:
    if isinstance(item, list):
        return read_ids(read_token_ids(item, field), field)
    if isinstance(item, dict) and isinstance(item.get("text"), str):
        return str(item["text"])
    if isinstance(item, dict) and not item.keys().isdisjoint(("image", "image_url", "audio")):
        raise InvalidRequest(f"`{field}` is an image or audio: this server reads text alone.", field=field)
    return read_text(item, field)


def read_token_ids(items: Sequence[JsonValue], field: str) -> tuple[int, ...]:
    """Token ids: whole numbers from 0 up, at least one of them. Raises `EmptyInput` besides."""
    if not items:
        raise EmptyInput(f"`{field}` is an empty list of token ids.", field=field)
    for index, item in enumerate(items):
        if type(item) is not int or not 0 <= item <= LARGEST_WHOLE_NUMBER:
            raise InvalidRequest(
                f"`{field}[{index}]` must be a token id, a whole number from 0 up, not {kind_of(item)}.",
                field=f"{field}[{index}]",
            )
    return tuple(items)


def read_normalize(document: Document) -> bool | None:
    """Whether rows are to have length 1; `None` leaves it to the model."""
    return _first([read_optional_flag(document, name) for name in ("normalize", "normalized")])


def read_dimensions(document: Document) -> int | None:
    """How many numbers a row is cut to, in any of the names for it."""
    return _first([read_count(document, name) for name in ("dimensions", "output_dimension")])


@dataclass(frozen=True, slots=True)
class Output:
    """How rows are written: as lists of numbers, or as base64 of their bytes."""

    kind: RowKind = RowKind.FLOAT
    base64: bool = False

    def encode(self, rows: npt.NDArray[np.generic]) -> list[str] | npt.NDArray[np.generic]:
        """`rows`, which are of `kind` already."""
        return base64_rows(rows) if self.base64 else rows


def base64_rows(rows: Iterable[npt.NDArray[np.generic]]) -> list[str]:
    """Each row, or each table of them, as base64 of its little-endian bytes."""
    little_endian = (row.astype(row.dtype.newbyteorder("<"), copy=False) for row in rows)
    return [binascii.b2a_base64(row.tobytes(), newline=False).decode("ascii") for row in little_endian]


def read_output(document: Document) -> Output:
    """How rows are to be written, where that is in one way."""
    outputs = read_outputs(document)
    if len(outputs) > 1:
        raise InvalidRequest(
            "`embedding_type` must name one type of numbers here: /embeddings gives several at once.",
            field="embedding_type",
        )
    return next(iter(outputs.values()))


def read_outputs(document: Document) -> Mapping[str, Output]:
    """How rows are to be written, by the names that the request has for it; at least one.

    `encoding_format` is float or base64; `output_dtype` (Voyage, Mistral) and `embedding_type` or
    `encoding_type` (Jina) name the numbers, Jina's base64 too, and several types at once.
    """
    base64 = read_choice(document, "encoding_format", ("float", _BASE64)) == _BASE64
    dtype = read_choice(document, "output_dtype", tuple(RowKind))
    types = [_read_types(document, name) for name in ("embedding_type", "encoding_type")]
    names = _first([None if dtype is None else (dtype,), *types]) or (RowKind.FLOAT,)
    return {
        name: Output(RowKind.FLOAT, base64=True) if name == _BASE64 else Output(RowKind(name), base64)
        for name in names
    }


def _read_types(document: Document, name: str) -> tuple[str, ...] | None:
    if isinstance(document.get(name), list):
        return read_row_types(document, name)
    choice = read_choice(document, name, ROW_TYPES)
    return None if choice is None else (choice,)


def read_row_types(document: Document, name: str) -> tuple[str, ...]:
    """The types of rows in a list, each once."""
    wanted = f"a list of at least one of: {', '.join(ROW_TYPES)}"
    items = read_items(document, name, wanted)
    if any(item not in ROW_TYPES for item in items):
        raise InvalidRequest(f"`{name}` must be {wanted}.", field=name)
    return tuple(dict.fromkeys(map(str, items)))


def read_choice(document: Document, name: str, choices: Sequence[str]) -> str | None:
    """One of `choices`, or `None` if it is absent."""
    value = read_string(document, name)
    if value is None or value in choices:
        return value
    raise InvalidRequest(f"`{name}` must be one of: {', '.join(choices)}.", field=name)


def best_first(result: RerankResult, limit: int | None) -> list[int]:
    """The documents' places, best first, ties in input order; so many of them."""
    places: list[int] = (-result.scores).argsort(kind="stable")[:limit].tolist()
    return places


def write_labels(result: ClassifyResult) -> list[list[dict[str, Any]]]:
    """All labels of each input, the best first."""
    return [
        [{"score": score, "label": label} for label, score in result.ranked(index)]
        for index in range(len(result.scores))
    ]


def usage(tokens: int) -> dict[str, int]:
    """What a request cost, as OpenAI's clients read it."""
    return {"prompt_tokens": tokens, "total_tokens": tokens}
