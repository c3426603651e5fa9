"""Bulk work in OpenAI's shape: `/files` and `/batches`, at root, under `/v1` and as Azure's clients ask."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from vecmill.types import JsonValue
from vecmill_server.batches.facade import Batches
from vecmill_server.batches.records import BatchRecord, FileRecord
from vecmill_server.batches.requests import read_batch_request, read_page
from vecmill_server.batches.uploads import FORM_BYTES
from vecmill_server.bodies import BodyLimits, read_body, stream_body
from vecmill_server.documents import decode_object, encode_json
from vecmill_server.errors import BatchesOff
from vecmill_server.exchange import allow_body_time, header
from vecmill_server.service import Service

# The lengths of pages, by default and at most: OpenAI's.
MOST_FILES = 10_000
BATCHES_BY_DEFAULT = 20
MOST_BATCHES = 100

# The request for a batch is short; what is longer is not read, which would keep the event loop.
MOST_REQUEST_BYTES = 256 * 1024


def batches_routes(service: Service) -> list[Route]:
    """There whether batches are on or off, so that whoever asks learns how to turn them on."""
    files, batches = Files(service), BatchRoutes(service)
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
        for version in ("/v1", "", "/openai/v1", "/openai")
    ]


class Files:
    """What clients upload, and what batches make."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._service = service
        self._limits = BodyLimits(
            settings.max_file_bytes + FORM_BYTES,
            settings.upload_timeout_s,
            "Upload several smaller files, or start the server with a larger --max-file-bytes.",
        )

    async def all(self, request: Request) -> Response:
        """Upload a file, or list them."""
        batches = _batches(self._service)
        if request.method == "POST":
            allow_body_time(request.scope, self._limits.timeout_s)
            body = stream_body(request.scope["headers"], request.receive, self._limits)
            kind = header(request.scope, b"content-type") or b""
            return _json((await batches.upload(kind, body)).document())
        page = read_page(request.query_params, default=MOST_FILES, most=MOST_FILES)
        files, has_more = await batches.files(page, request.query_params.get("purpose") or None)
        return _json(_list(files, has_more))

    async def one(self, request: Request) -> Response:
        """Describe a file, or delete it."""
        batches, file_id = _batches(self._service), request.path_params["id"]
        if request.method == "DELETE":
            await batches.delete_file(file_id)
            return _json({"id": file_id, "object": "file", "deleted": True})
        return _json((await batches.file(file_id)).document())

    async def content(self, request: Request) -> Response:
        """What is in a file."""
        record, path = await _batches(self._service).content(request.path_params["id"])
        return FileResponse(path, media_type="application/octet-stream", filename=record.filename)


class BatchRoutes:
    """Batches of requests."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._service = service
        self._limits = BodyLimits(
            min(settings.max_body_bytes, MOST_REQUEST_BYTES),
            settings.body_timeout_s,
            "Upload the requests of a batch as a file, and name it in `input_file_id`.",
        )

    async def all(self, request: Request) -> Response:
        """Make a batch, or list them."""
        batches = _batches(self._service)
        if request.method == "POST":
            body = await read_body(request.scope["headers"], request.receive, self._limits)
            return _json((await batches.create(read_batch_request(decode_object(body)))).document())
        page = read_page(request.query_params, default=BATCHES_BY_DEFAULT, most=MOST_BATCHES)
        return _json(_list(*await batches.batches(page)))

    async def one(self, request: Request) -> Response:
        """How a batch is doing."""
        return _json((await _batches(self._service).batch(request.path_params["id"])).document())

    async def cancel(self, request: Request) -> Response:
        """Run no more of a batch's requests."""
        return _json((await _batches(self._service).cancel(request.path_params["id"])).document())


def _batches(service: Service) -> Batches:
    if service.batches is None:
        raise BatchesOff(
            "This server keeps no files and batches. Start it with --batch-dir FOLDER, a folder for them."
        )
    return service.batches


def _list(kept: list[FileRecord] | list[BatchRecord], has_more: bool) -> dict[str, JsonValue]:
    documents = [one.document() for one in kept]
    return {
        "object": "list",
        "data": documents,
        "first_id": kept[0].id if kept else None,
        "last_id": kept[-1].id if kept else None,
        "has_more": has_more,
    }


def _json(document: Mapping[str, JsonValue]) -> Response:
    return Response(encode_json(document), media_type="application/json")
