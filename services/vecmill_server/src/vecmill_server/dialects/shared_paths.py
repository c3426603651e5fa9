"""The paths that several APIs share, and the keys that tell the bodies of their clients apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill_server.base.json_schema import Schema, any_of, without
from vecmill_server.dialects.fields import Json

EMBEDDINGS_PATHS = ("/v1/embeddings", "/embeddings")
# The paths of llama.cpp and Mixedbread.
RERANKING_PATHS = ("/reranking", "/v1/reranking")
RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank", *RERANKING_PATHS)
TOKENIZE_PATHS = ("/tokenize", "/v1/tokenize")


@dataclass(frozen=True, slots=True)
class Marks:
    """The keys by which a body is known: one of `any_of`, none of `none_of`, and no marks of `after`.

    A key that is null counts, unless the body `needs_value`. Marks without `any_of` are those of all other
    bodies.
    """

    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    after: tuple["Marks", ...] = ()
    needs_value: bool = False

    def fit(self, json: Json) -> bool:
        """Return whether a body has the marks."""
        present = [name for name in self.any_of if name in json]
        is_marked = any(json[name] is not None for name in present) if self.needs_value else bool(present)
        return (
            (is_marked or not self.any_of)
            and json.keys().isdisjoint(self.none_of)
            and not any(other.fit(json) for other in self.after)
        )

    def restrict(self, schema: Schema) -> Schema:
        """Return the schema of a body, restricted to bodies with the marks."""
        absent = (*(name for other in self.after for name in other.any_of), *self.none_of)
        rules: list[Mapping[str, Any]] = [without(*absent)] if absent else []
        if not set(self.any_of) <= set(schema.get("required", ())):
            rules.append(any_of(*({"required": [name]} for name in self.any_of)))
        if not rules:
            return schema
        if len(rules) == 1 and "allOf" not in schema:
            return {**schema, **rules[0]}
        return {**schema, "allOf": [*schema.get("allOf", ()), *rules]}


LLAMA_EMBEDDINGS = Marks(("content",), none_of=("input",))

TEI_RERANK = Marks(("texts",), needs_value=True)
VOYAGE_RERANK = Marks(("truncation", "top_k"), after=(TEI_RERANK,))
WEAVIATE_RERANK = Marks(("property",), after=(TEI_RERANK, VOYAGE_RERANK))
MIXEDBREAD_RERANK = Marks(("input",), none_of=("documents", "texts"))
OTHER_RERANK = Marks(after=(TEI_RERANK, VOYAGE_RERANK, WEAVIATE_RERANK))

TEI_TOKENIZE = Marks(("inputs",))
COHERE_TOKENIZE = Marks(("text",), after=(TEI_TOKENIZE,))
LLAMA_TOKENIZE = Marks(("content",), none_of=("prompt",), after=(TEI_TOKENIZE, COHERE_TOKENIZE))
OTHER_TOKENIZE = Marks(after=(TEI_TOKENIZE, COHERE_TOKENIZE))
