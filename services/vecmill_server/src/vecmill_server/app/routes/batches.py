"""The routes of OpenAI's Batch API: `/files` and `/batches`, also under `/v1` and at Azure's paths."""

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from vecmill_server.app.openapi.operations import Api, Paths, as_json, at, describe_error, headers
from vecmill_server.app.request_record import RequestContext
from vecmill_server.base.errors import BatchesOff
from vecmill_server.base.headers import header
from vecmill_server.base.json_io import decode_object, json_response, run_off_loop
from vecmill_server.base.json_schema import STRING, Component, Schema, described, word
from vecmill_server.batches.batch_request import BatchRequest, read_page
from vecmill_server.batches.batch_service import BatchService
from vecmill_server.batches.objects import BATCH, FILE, BatchObject, FileObject, list_schema
from vecmill_server.batches.uploads import BYTES, FORM, FORM_BYTES, WRITE_BYTES
from vecmill_server.service.api_keys import UNNAMED
from vecmill_server.service.bodies import BodyLimits, read_body, stream_body
from vecmill_server.service.service import Service

# The default and maximum lengths of pages, as OpenAI's.
MOST_FILES = 10_000
BATCHES_BY_DEFAULT = 20
MOST_BATCHES = 100
# A longer list is written in a thread.
MOST_ON_LOOP = 16

# The request body that creates a batch is short. Decoding a long body would block the event loop.
MOST_REQUEST_BYTES = 256 * 1024


# The prefixes of OpenAI's paths.
_PREFIXES = ("/v1", "", "/openai/v1", "/openai")


def batches_routes(service: Service) -> list[Route]:
    """Return the routes. Without `--batch-dir` they answer with an error that names this option."""
    files, batches = FileRoutes(service), BatchRoutes(service)
    table = [
        ("files", "/files", files.all, ["GET", "POST"]),
        ("file", "/files/{id}", files.one, ["GET", "DELETE"]),
        ("file_content", "/files/{id}/content", files.content, ["GET"]),
        ("batches", "/batches", batches.all, ["GET", "POST"]),
        ("batch", "/batches/{id}", batches.one, ["GET"]),
        ("batch_cancel", "/batches/{id}/cancel", batches.cancel, ["POST"]),
    ]
    return [
        Route(f"{version}{path}", endpoint, methods=methods, name=name)
        for name, path, endpoint, methods in table
        for version in _PREFIXES
    ]


class FileRoutes:
    """The files that clients upload, and the output files of batches."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._service = service
        self._limits = BodyLimits(
            settings.max_file_bytes + FORM_BYTES,
            settings.upload_timeout_s,
            "Upload several smaller files, or start the server with a larger --max-file-bytes.",
        )

    async def all(self, request: Request) -> Response:
        """Upload a file, or list the files."""
        batches, owner = _batches(self._service), _owner(request)
        if request.method == "POST":
            body = stream_body(request.scope, request.receive, self._limits)
            kind = header(request.scope, b"content-type") or b""
            size = int(header(request.scope, b"content-length") or 0)  # the HTTP parser accepts only digits
            budget = self._service.budget
            with budget.hold() as held:
                # The most bytes of the file that wait to be written to the disk.
                held.reserve(min(size or WRITE_BYTES, WRITE_BYTES, budget.large_limit))
                return json_response((await batches.upload(owner, kind, size, body)).to_json())
        page = read_page(request.query_params, default=MOST_FILES, most=MOST_FILES)
        files, has_more = await batches.files(owner, page, request.query_params.get("purpose") or None)
        return await _list(files, has_more)

    async def one(self, request: Request) -> Response:
        """Describe a file, or delete it."""
        batches, owner, file_id = _batches(self._service), _owner(request), request.path_params["id"]
        if request.method == "DELETE":
            await batches.delete_file(owner, file_id)
            return json_response({"id": file_id, "object": "file", "deleted": True})
        return json_response((await batches.file(owner, file_id)).to_json())

    async def content(self, request: Request) -> Response:
        """Return the content of a file."""
        file_id = request.path_params["id"]
        record, path = await _batches(self._service).content(_owner(request), file_id)
        return FileResponse(path, media_type="application/octet-stream", filename=record.filename)


class BatchRoutes:
    """The batches that clients create."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._service = service
        self._limits = BodyLimits(
            min(settings.max_body_bytes, MOST_REQUEST_BYTES),
            settings.body_timeout_s,
            "Upload the requests of a batch as a file, and name it in `input_file_id`.",
        )

    async def all(self, request: Request) -> Response:
        """Create a batch, or list the batches."""
        batches, owner = _batches(self._service), _owner(request)
        if request.method == "POST":
            with self._service.budget.hold() as held:
                body = await read_body(request.scope, request.receive, self._limits, held)
            new = BatchRequest(decode_object(body), self._service.dialect_options).read()
            return json_response((await batches.create(owner, new)).to_json())
        page = read_page(request.query_params, default=BATCHES_BY_DEFAULT, most=MOST_BATCHES)
        return await _list(*await batches.batches(owner, page))

    async def one(self, request: Request) -> Response:
        """Describe a batch, with its progress."""
        batches, batch_id = _batches(self._service), request.path_params["id"]
        return json_response((await batches.batch(_owner(request), batch_id)).to_json())

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch: no more of its requests are run."""
        batches, batch_id = _batches(self._service), request.path_params["id"]
        return json_response((await batches.cancel(_owner(request), batch_id)).to_json())


def _batches(service: Service) -> BatchService:
    if service.batches is None:
        raise BatchesOff(service.batches_off)
    return service.batches


def _owner(request: Request) -> str:
    """Return the owner of the objects that the request sees. Without keys, all requests have one owner."""
    return RequestContext.of(request.scope).owner or UNNAMED


async def _list(kept: list[FileObject] | list[BatchObject], has_more: bool) -> Response:
    def write() -> Response:
        return json_response(
            {
                "object": "list",
                "data": [one.to_json() for one in kept],
                "first_id": kept[0].id if kept else None,
                "last_id": kept[-1].id if kept else None,
                "has_more": has_more,
            }
        )

    return await run_off_loop(len(kept) > MOST_ON_LOOP, write)


_DELETED = Component("FileDeleted", {"id": str, "object": "file", "deleted": bool})
_FILE_HEADERS = ("content-disposition", "accept-ranges", "last-modified", "etag")


def _operation(
    summary: str, response: Component, *statuses: int, parameters: Iterable[Schema] = (), body: Any = None
) -> dict[str, Any]:
    errors = {str(status): describe_error("An error") for status in (*statuses, 503)}
    done = {"description": "Done", "content": as_json(response)}
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": [Api.BATCHES],
        "parameters": list(parameters),
        "responses": {"200": done, **errors},
    }
    return operation if body is None else {**operation, "requestBody": {"required": True, "content": body}}


def _parameter(name: str, place: str = "query", schema: Schema = STRING) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _paging(most: int) -> list[Schema]:
    limit: Schema = {"type": "integer", "minimum": 1, "maximum": most}
    after = described(str, "The last id of the previous page.")
    return [_parameter("limit", schema=limit), _parameter("after", schema=after)]


def _read_content() -> dict[str, Any]:
    operation = _operation("The content of a file", FILE, 404, parameters=_ID)
    content = {"application/octet-stream": {"schema": BYTES}}
    plain = {"text/plain": {"schema": STRING}}
    operation["responses"] |= {
        "200": {"description": "Done", "content": content, "headers": headers(_FILE_HEADERS)},
        "206": {
            "description": "The requested ranges",
            "content": {**content, "multipart/byteranges": {"schema": BYTES}},
            "headers": headers((*_FILE_HEADERS, "content-range")),
        },
        "400": {"description": "The range is invalid", "content": plain},
        "416": {
            "description": "The file ends before the range",
            "content": plain,
            "headers": headers(("content-range",)),
        },
    }
    return operation


def _describe_request() -> dict[str, Any]:
    content = as_json(BatchRequest.component())
    example = {"input_file_id": "file-1", "endpoint": "/v1/embeddings", "completion_window": "24h"}
    content["application/json"]["examples"] = {"BatchRequest": {"value": example}}
    return content


_ID = (_parameter("id", "path"),)
_OPERATIONS: Paths = {
    "/files": {
        "get": _operation(
            "The files",
            list_schema("FileList", FILE),
            400,
            404,
            parameters=[
                *_paging(MOST_FILES),
                _parameter("order", schema=word("asc", "desc")),
                _parameter("purpose"),
            ],
        ),
        "post": _operation(
            "Upload a file",
            FILE,
            *(400, 404, 408, 413, 415),
            body={"multipart/form-data": {"schema": FORM}},
        ),
    },
    "/files/{id}": {
        "get": _operation("A file", FILE, 404, parameters=_ID),
        "delete": _operation("Delete a file", _DELETED, 404, 409, parameters=_ID),
    },
    "/files/{id}/content": {"get": _read_content()},
    "/batches": {
        "get": _operation(
            "The batches, newest first",
            list_schema("BatchList", BATCH),
            400,
            404,
            parameters=_paging(MOST_BATCHES),
        ),
        "post": _operation(
            "Run the requests of a file",
            BATCH,
            *(400, 404, 408, 413, 415, 429),
            body=_describe_request(),
        ),
    },
    "/batches/{id}": {"get": _operation("A batch", BATCH, 404, parameters=_ID)},
    "/batches/{id}/cancel": {"post": _operation("Cancel a batch", BATCH, 404, 409, parameters=_ID)},
}
PATHS: Paths = {
    alias: operations
    for path, found in _OPERATIONS.items()
    for alias, operations in at(*(f"{prefix}{path}" for prefix in _PREFIXES), **found).items()
}
