"""The routes about the server that clients of other servers read.

Weaviate's modules read `/meta`. Clients of llama.cpp's server read `/v1/health` and `/props`. Those of
Xinference learn from `/v1/cluster/auth` whether to send their API key.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.errors import NotReady
from vecmill.hardware.cores import available_cores
from vecmill.values.clock import Clock, monotonic
from vecmill_server import __version__
from vecmill_server.app.openapi.operations import Api, Paths, as_json, describe_error, get
from vecmill_server.app.request_record import RequestContext
from vecmill_server.base.json_io import json_response
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects.llama_cpp import LLAMA_STYLE, llama_response
from vecmill_server.dialects.picture_fields import MEDIA_MARKER
from vecmill_server.service.service import Service


def routes_of_other_servers(service: Service) -> list[Route]:
    """Return the routes. Those of Weaviate and Xinference need no key."""
    server, has_keys = LlamaServer(service), service.settings.has_api_keys

    async def auth(request: Request) -> Response:
        return json_response({"auth": has_keys})

    async def meta(request: Request) -> Response:
        # It needs no key, so it names no model. Weaviate shows it among its own modules.
        return json_response({"server": "vecmill", "version": __version__})

    async def check_key(request: Request) -> Response:
        # A wrong key has been refused before, with 401, as Cohere does.
        return json_response({"valid": True})

    return [
        Route("/v1/health", server.health, methods=["GET"], name="health"),
        Route("/props", server.props, methods=["GET"], name="props"),
        Route("/meta", meta, methods=["GET"], name="meta"),
        Route("/v1/cluster/auth", auth, methods=["GET"], name="cluster_auth"),
        Route("/v1/check-api-key", check_key, methods=["POST"], name="check_api_key"),
    ]


class LlamaServer:
    """The endpoints about the server and its first model."""

    def __init__(self, service: Service, clock: Clock = monotonic) -> None:
        self._service = service
        self._clock = clock

    async def health(self, request: Request) -> Response:
        """Answer 200 if a load balancer should send requests here, as `/readyz` does."""
        RequestContext.of(request.scope).respond = llama_response
        self._service.drain.note_probe(self._clock())
        if not self._service.is_ready:
            raise NotReady("Loading model")
        return json_response({"status": "ok"})

    async def props(self, request: Request) -> Response:
        """Return the properties of the first model that clients of an embedding server read."""
        RequestContext.of(request.scope).respond = llama_response
        model = self._service.catalog.resolve_serving(None)
        description, info = model.mill.description, model.mill.info
        return json_response(
            {
                "default_generation_settings": {"n_ctx": description.max_tokens},
                "total_slots": info.lanes_on(available_cores()),
                "model_alias": model.name,
                "model_path": model.name,
                "modalities": {"vision": description.pictures is not None, "audio": False},
                "media_marker": MEDIA_MARKER,
                "chat_template": "",
                "bos_token": "",
                "eos_token": "",
                "build_info": f"vecmill-{__version__}",
                "is_sleeping": False,
            }
        )


_PROPS = Component(
    "LlamaProps",
    {
        "default_generation_settings": {"n_ctx": int},
        "total_slots": int,
        "modalities": {"vision": bool, "audio": bool},
        **dict.fromkeys(
            (
                *("model_alias", "model_path", "chat_template", "bos_token", "eos_token", "build_info"),
                "media_marker",
            ),
            str,
        ),
        "is_sleeping": bool,
    },
)


def _describe(summary: str, content: Component) -> dict[str, object]:
    operation = get(summary, as_json(content), apis=(Api.LLAMA_CPP,))
    error = describe_error("The server or the model is loading", (LLAMA_STYLE.error_body,))
    operation["responses"]["503"] = error
    return operation


PATHS: Paths = {
    "/v1/health": {
        "get": _describe(
            "The same as /readyz, for llama.cpp's clients", Component("LlamaHealth", {"status": "ok"})
        )
    },
    "/props": {"get": _describe("The first model, in llama.cpp's format", _PROPS)},
    "/meta": {
        "get": get(
            "The server, for Weaviate's modules",
            as_json(Component("WeaviateMeta", {"server": "vecmill", "version": str})),
            apis=(Api.WEAVIATE,),
        )
    },
    "/v1/cluster/auth": {
        "get": get(
            "Whether requests need a key, for Xinference's clients",
            as_json(Component("XinferenceAuth", {"auth": bool})),
        )
    },
    "/v1/check-api-key": {
        "post": get(
            "Whether the key of the request is valid, for Cohere's clients",
            as_json(Component("CohereKeyCheck", {"valid": bool})),
            apis=(Api.COHERE,),
        )
    },
}
