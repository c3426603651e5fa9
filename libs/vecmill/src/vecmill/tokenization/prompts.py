"""Finds the prompt that goes before each text of a request.

Source of the names: sentence-transformers 6.2 (`encode_query`, `encode_document`), and the prompts of
published models (nomic-embed, jina-embeddings, e5, snowflake-arctic-embed).
"""

from collections.abc import Mapping

from vecmill.errors import InvalidRequest, UnknownPrompt
from vecmill.requests import Purpose, TextOptions

# The names of the prompt of each purpose, those of sentence-transformers first.
PROMPT_NAMES: Mapping[Purpose, tuple[str, ...]] = {
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

# In sentence-transformers every model has prompts of these names, by default empty.
_ALWAYS_THERE = frozenset({Purpose.QUERY, Purpose.DOCUMENT})


def find_prompt(prompts: Mapping[str, str], default: str, options: TextOptions) -> str:
    """Return the prompt for a request, from a model's `prompts` by name and its `default` prompt.

    Raises `UnknownPrompt`, and `InvalidRequest` if the request names two prompts.
    """
    if options.prompt is not None:
        if options.prompt_name is not None:
            raise InvalidRequest("Send `prompt` or `prompt_name`, not both.", field="prompt")
        return options.prompt
    if options.prompt_name is not None:
        return _named(prompts, options.prompt_name)
    if options.purpose is None:
        return default
    names = (name for name in PROMPT_NAMES[options.purpose] if name in prompts)
    name = next(names, None)
    if name is None:
        return "" if options.purpose in _ALWAYS_THERE else default
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
