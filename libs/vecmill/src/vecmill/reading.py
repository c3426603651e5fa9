"""How the texts of a request are read: which prompt goes before them, and what becomes of long ones.

Source of the prompts' names: sentence-transformers 6.2 (`encode_query`, `encode_document`), and what
published models call theirs (nomic-embed, jina-embeddings, e5, snowflake-arctic-embed).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from vecmill.errors import InvalidRequest, UnknownPrompt


class Purpose(StrEnum):
    """What a text is embedded for: many models read queries and documents differently."""

    QUERY = "query"
    DOCUMENT = "document"
    CLASSIFICATION = "classification"
    CLUSTERING = "clustering"
    SIMILARITY = "similarity"


@dataclass(frozen=True, slots=True)
class Truncation:
    """What becomes of a text that is longer than the model reads, or than `max_tokens` where that is less.

    It is cut, or refused where not `is_allowed`. With `keeps_end` its beginning is cut off, else its end;
    `None` leaves that to the model.
    """

    is_allowed: bool = True
    keeps_end: bool | None = None
    max_tokens: int | None = None

    def within(self, max_tokens: int | None) -> "Truncation":
        """The same, to at most `max_tokens` where that is a number."""
        limits = [limit for limit in (self.max_tokens, max_tokens) if limit is not None]
        return replace(self, max_tokens=min(limits, default=None))


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read the texts of a request.

    What goes before each is `prompt`, or the model's prompt called `prompt_name`, or the one it has for
    `purpose`, or its default one. Of each query and document of a rerank at most `query_tokens` and
    `document_tokens` are read, prompts and special tokens not counted.
    """

    prompt_name: str | None = None
    prompt: str | None = None
    purpose: Purpose | None = None
    truncation: Truncation = Truncation()
    query_tokens: int | None = None
    document_tokens: int | None = None


DEFAULT_TRUNCATION = Truncation()
DEFAULT_READING = Reading()

# The names under which models keep the prompt of a purpose, the reference's own first.
PROMPT_NAMES: Mapping[Purpose, tuple[str, ...]] = MappingProxyType(
    {
        Purpose.QUERY: ("query", "search_query", "retrieval.query", "Retrieval-query"),
        Purpose.DOCUMENT: (
            "document",
            "passage",
            "corpus",
            "search_document",
            "retrieval.passage",
            "Retrieval-document",
        ),
        Purpose.CLASSIFICATION: ("classification", "Classification"),
        Purpose.CLUSTERING: ("clustering", "separation", "Clustering"),
        Purpose.SIMILARITY: ("text-matching", "STS", "sts"),
    }
)

# Prompts of these names every model has in the reference, empty where its directory has none.
_ALWAYS_THERE = frozenset({Purpose.QUERY, Purpose.DOCUMENT})


def find_prompt(prompts: Mapping[str, str], default: str, reading: Reading) -> str:
    """What goes before each text, for a model with these `prompts`, of which `default` is the one unasked.

    Raises `UnknownPrompt`, and `InvalidRequest` where two prompts are asked for.
    """
    if reading.prompt is not None:
        if reading.prompt_name is not None:
            raise InvalidRequest("Send `prompt` or `prompt_name`, not both.", field="prompt")
        return reading.prompt
    if reading.prompt_name is not None:
        return _named(prompts, reading.prompt_name)
    if reading.purpose is None:
        return default
    names = (name for name in PROMPT_NAMES[reading.purpose] if name in prompts)
    name = next(names, None)
    if name is None:
        return "" if reading.purpose in _ALWAYS_THERE else default
    return prompts[name]


def _named(prompts: Mapping[str, str], name: str) -> str:
    if name in prompts:
        return prompts[name]
    if name in _ALWAYS_THERE:
        return ""
    known = ", ".join(sorted(prompts)) or "none"
    raise UnknownPrompt(
        f"The model has no prompt named {name[:100]!r}. It has: {known}.", field="prompt_name"
    )
