"""Finds the prompt that goes before each text of a request.

Source of the names: sentence-transformers 6.2 (`encode_query`, `encode_document`), and the prompts of
published models (nomic-embed, jina-embeddings, e5, snowflake-arctic-embed).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vecmill.errors import InvalidRequest, UnknownPrompt
from vecmill.requests import Purpose, TextOptions

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

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


@dataclass(frozen=True, slots=True)
class Prompt:
    """What goes before a text, and the `adapter` that the text goes with.

    That is the number of one of the model's adapters, from 1, or 0 for none.
    """

    text: str
    adapter: int = 0


NO_PROMPT = Prompt("")


def default_prompt(description: "ModelDescription") -> Prompt:
    """Return the prompt of texts for which the client names none, with its adapter."""
    name, adapters = description.default_prompt_name, description.encoder.adapters
    return Prompt(description.default_prompt, _number(adapters, name))


def prompt_in_turn(description: "ModelDescription", number: int) -> Prompt:
    """Return the prompt of a text that checks or calibrates a model: the default prompt.

    If there are adapters, those and the default prompt take turns by the `number` of the text.
    """
    adapters = description.encoder.adapters
    turn = number % (len(adapters) + 1)
    if not turn:
        return default_prompt(description)
    return Prompt(description.prompts[adapters[turn - 1]], turn)


def find_prompt(
    prompts: Mapping[str, str], default: Prompt, options: TextOptions, adapters: Sequence[str] = ()
) -> Prompt:
    """Return the prompt for a request, from a model's `prompts` by name and its `default` prompt.

    `adapters` are the names of the model's adapters; a prompt of the same name goes with each. A prompt in
    the caller's own words goes with the adapter for the purpose. Raises `UnknownPrompt`, also for a purpose
    without an adapter if there are adapters, and `InvalidRequest` if the request names two prompts.
    """
    if options.prompt is not None and options.prompt_name is not None:
        raise InvalidRequest("Send `prompt` or `prompt_name`, not both.", field="prompt")
    if options.prompt_name is not None:
        return Prompt(_named(prompts, options.prompt_name), _number(adapters, options.prompt_name))
    if options.purpose is None:
        return default if options.prompt is None else Prompt(options.prompt)
    name = next((name for name in PROMPT_NAMES[options.purpose] if name in prompts), None)
    if adapters and name not in adapters:
        raise UnknownPrompt(
            f"The model has no adapter for the purpose {options.purpose.value}. It has: "
            f"{', '.join(adapters)}."
        )
    adapter = _number(adapters, name)
    if options.prompt is not None:
        return Prompt(options.prompt, adapter)
    if name is not None:
        return Prompt(prompts[name], adapter)
    return NO_PROMPT if options.purpose in _ALWAYS_THERE else default


def find_prompt_name(
    prompts: Mapping[str, str],
    default_name: str | None,
    options: TextOptions,
    adapters: Sequence[str] = (),
) -> str | None:
    """Return the name of the prompt or the adapter that `find_prompt` chooses.

    `None` if there is neither, and for a prompt in the caller's own words.
    """
    name = options.prompt_name or default_name
    if options.prompt_name is None and options.prompt is not None:
        return None
    if options.prompt_name is None and options.purpose is not None:
        found = next((name for name in PROMPT_NAMES[options.purpose] if name in prompts), None)
        name = None if found is None and options.purpose in _ALWAYS_THERE else found or default_name
    return name if name is not None and (prompts.get(name) or name in adapters) else None


def _number(adapters: Sequence[str], name: str | None) -> int:
    return adapters.index(name) + 1 if name in adapters else 0


def _named(prompts: Mapping[str, str], name: str) -> str:
    if name in prompts:
        return prompts[name]
    if name in _ALWAYS_THERE:
        return ""
    known = ", ".join(sorted(prompts)) or "none"
    raise UnknownPrompt(
        f"The model has no prompt named {name[:100]!r}. It has: {known}.", field="prompt_name"
    )
