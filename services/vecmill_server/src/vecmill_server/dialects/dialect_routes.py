"""The dialects that the server supports. A new dialect is a module with `ROUTES` and a line in this file."""

from collections.abc import Iterable
from dataclasses import replace

from vecmill_server.dialects import (
    azure,
    cohere,
    cohere_rerank,
    hugging_face,
    llama_cpp,
    ollama,
    openai,
    predict,
    rankings,
    tei,
    vllm,
    vllm_pooling,
    voyage,
    weaviate,
)
from vecmill_server.dialects.dialect import InferenceBody, InferenceRoute
from vecmill_server.dialects.fields import DialectOptions, Json

# The most frequent paths first, because the router tries one after the other. Where routes share a path, the
# order is that of the shapes in the OpenAPI document.
ROUTES: tuple[InferenceRoute, ...] = (
    *openai.ROUTES,
    *cohere_rerank.ROUTES,
    *rankings.ROUTES,
    *voyage.ROUTES,
    *weaviate.ROUTES,
    *vllm.ROUTES,
    *vllm_pooling.ROUTES,
    *tei.ROUTES,
    *llama_cpp.ROUTES,
    *predict.ROUTES,
    *cohere.ROUTES,
    *ollama.ROUTES,
    *azure.ROUTES,
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
    usual = {path: route for route in ROUTES if route.when is None for path in route.paths}
    return {
        path: next(other for other in usual[path].paths if by_path[other].bodies == route.bodies)
        for path, route in by_path.items()
    }


def _merge(path: str, routes: list[InferenceRoute]) -> InferenceRoute:
    usual = next(route for route in routes if route.when is None)
    if len(routes) == 1:
        return replace(usual, paths=(path,))

    def choose(json: Json, _options: DialectOptions) -> type[InferenceBody]:
        found = (route for route in routes if route.when is not None and route.when(json))
        return next(found, usual).bodies[0]

    bodies = tuple(body for route in routes for body in route.bodies)
    return InferenceRoute(usual.name, (path,), usual.summary, bodies, choose)
