"""The dialects that the server supports. A new dialect is a module with `ROUTES` and a line in this file."""

from collections.abc import Iterable
from dataclasses import replace

from vecmill_server.dialects import (
    alibaba,
    cohere,
    deepinfra,
    flag_embedding,
    hugging_face,
    llama_cpp,
    nvidia,
    ollama,
    openai,
    other_rerankers,
    pinecone,
    tei,
    vllm,
    voyage,
    weaviate,
)
from vecmill_server.dialects.dialect import InferenceRoute, choose_by_marks

# The most frequent paths first, because the router tries one after the other. Where routes share a path, the
# OpenAPI document has the usual body first, and the others in this order.
ROUTES: tuple[InferenceRoute, ...] = (
    *openai.ROUTES,
    *other_rerankers.ROUTES,
    *deepinfra.ROUTES,
    *pinecone.ROUTES,
    *nvidia.ROUTES,
    *vllm.ROUTES,
    *tei.ROUTES,
    *llama_cpp.ROUTES,
    *cohere.ROUTES,
    *ollama.ROUTES,
    *alibaba.ROUTES,
    *flag_embedding.ROUTES,
    *voyage.ROUTES,
    *weaviate.ROUTES,
    *hugging_face.ROUTES,
)


def routes_by_path(routes: Iterable[InferenceRoute] = ROUTES) -> dict[str, InferenceRoute]:
    """Return one route for each path, in order."""
    sharing: dict[str, list[InferenceRoute]] = {}
    for route in routes:
        for path in route.paths:
            sharing.setdefault(path, []).append(route)
    return {path: _merge(path, found) for path, found in sharing.items()}


def main_paths() -> dict[str, str]:
    """Return for each path the first path of its route that reads the same bodies: itself or another path."""
    by_path = routes_by_path()
    usual = {path: route for route in ROUTES if route.is_usual for path in route.paths}
    return {
        path: next(other for other in usual[path].paths if by_path[other].bodies == route.bodies)
        for path, route in by_path.items()
    }


def _merge(path: str, routes: list[InferenceRoute]) -> InferenceRoute:
    usual = next(route for route in routes if route.is_usual)
    if len(routes) == 1:
        return replace(usual, paths=(path,))
    marked = [route.bodies[0] for route in routes if not route.is_usual]
    bodies = (*usual.bodies, *marked)
    return InferenceRoute(
        usual.name, (path,), usual.summary, bodies, choose_by_marks(usual.bodies[0], marked)
    )
