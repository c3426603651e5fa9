"""The route that takes a model out of what is served: Ollama's `DELETE /api/delete`.

`/api/pull` brings the model back. Both need an admin key.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.app.openapi.operations import Api, Paths, as_json, describe_error
from vecmill_server.app.request_record import RequestContext
from vecmill_server.base.byte_budget import HeldBytes
from vecmill_server.base.error_responses import SENTENCE_BODY
from vecmill_server.base.json_io import decode_object, json_response
from vecmill_server.base.json_schema import Component
from vecmill_server.catalog.admin_changes import admin_required, remove_model
from vecmill_server.dialects.fields import invalid
from vecmill_server.dialects.ollama import OLLAMA_STYLE, OllamaDeleteRequest
from vecmill_server.service.bodies import BodyLimits, read_body
from vecmill_server.service.service import Service


def catalog_routes(service: Service) -> list[Route]:
    """Return the routes that change what is served."""
    limits = BodyLimits.of(service.settings)

    async def delete(request: Request) -> Response:
        context = RequestContext.of(request.scope)
        held = HeldBytes(service.budget)
        try:
            body = await read_body(request.scope, request.receive, limits, held)
            context.has_body, context.respond = True, OLLAMA_STYLE.respond
            if not context.is_admin:
                raise admin_required()
            asked = OllamaDeleteRequest.parse(decode_object(body), service.dialect_options)
        finally:
            held.release()
        if asked.model is None:
            raise invalid("model", "is required: the name of a model.")
        remove_model(service.catalog, asked.model)
        return json_response({"status": "success"})

    return [Route("/api/delete", delete, methods=["DELETE"], name="delete")]


# Ollama's own body is empty, and its clients do not read it.
_DONE = Component("OllamaDeleteResponse", {"status": str})


def _describe_delete() -> dict[str, object]:
    content = as_json(OllamaDeleteRequest.component())
    content["application/json"]["examples"] = {"OllamaDeleteRequest": {"value": {"model": "docs"}}}
    statuses = {
        "400": "The model is always served, or a field is wrong",
        "403": "The key is not an admin key",
        "404": "No model has that name",
        "408": "The body took too long to arrive",
        "413": "The body is over the limit",
        "415": "The body is compressed",
    }
    return {
        "summary": "Stop serving a model until it is pulled; no file is deleted",
        "tags": [Api.OLLAMA],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": {"description": "Done", "content": as_json(_DONE)},
            **{status: describe_error(text, (SENTENCE_BODY,)) for status, text in statuses.items()},
        },
    }


PATHS: Paths = {"/api/delete": {"delete": _describe_delete()}}
