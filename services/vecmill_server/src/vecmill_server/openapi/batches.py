"""What `routes.batches` reads and writes: files and batches."""

from collections.abc import Iterable
from typing import Any

from vecmill_server.batches.lines import ENDPOINTS
from vecmill_server.batches.records import BatchStatus, Purpose
from vecmill_server.batches.requests import MAX_METADATA, MAX_METADATA_VALUE
from vecmill_server.batches.uploads import LONGEST_AGE_S, SHORTEST_AGE_S
from vecmill_server.openapi.headers import headers
from vecmill_server.openapi.operations import as_json, problem_response
from vecmill_server.openapi.vocabulary import (
    COUNT,
    OPTIONAL_STRING,
    STRING,
    Family,
    Schema,
    an_object,
    described,
    list_of,
    reference,
)
from vecmill_server.settings import ServerSettings

_BYTES: Schema = {"type": "string", "format": "binary"}
_AGE: Schema = {"type": "integer", "minimum": SHORTEST_AGE_S, "maximum": LONGEST_AGE_S}
_TIME: Schema = {"type": "integer", "description": "Unix seconds"}
_TIME_OR_NULL: Schema = {**_TIME, "nullable": True}
_OF_A_FILE = ("content-disposition", "accept-ranges", "last-modified", "etag")
# From 1h to LONGEST_WINDOW_H, which is 336; the empty text is as good as none.
_WINDOW = "^(([1-9]|[1-9][0-9]|[12][0-9][0-9]|3[0-2][0-9]|33[0-6])h)?$"


def describe_batches(settings: ServerSettings) -> Family:
    """Files and batches, with and without a version in the path, and where Azure's clients look."""
    return Family(_paths(), _schemas())


def _paths() -> dict[str, Any]:
    file_id, batch_id = [_parameter("id", "path")], [_parameter("id", "path")]
    paths = {
        "/files": {"get": _list_files(), "post": _upload()},
        "/files/{id}": {
            "get": _operation("A file", "File", 404, parameters=file_id),
            "delete": _operation("Delete a file", "FileDeleted", 404, 409, parameters=file_id),
        },
        "/files/{id}/content": {"get": _read_content(file_id)},
        "/batches": {"get": _list_batches(), "post": _create_batch()},
        "/batches/{id}": {"get": _operation("A batch", "Batch", 404, parameters=batch_id)},
        "/batches/{id}/cancel": {
            "post": _operation("Run no more of a batch", "Batch", 404, 409, parameters=batch_id)
        },
    }
    return {
        f"{version}{path}": item
        for path, item in paths.items()
        for version in ("/v1", "", "/openai/v1", "/openai")
    }


def _schemas() -> dict[str, Any]:
    return {
        "File": _whole(
            id=STRING,
            object={"type": "string", "enum": ["file"]},
            purpose={"type": "string", "enum": list(Purpose)},
            filename=STRING,
            bytes=COUNT,
            created_at=_TIME,
            expires_at=_TIME_OR_NULL,
            status={"type": "string", "enum": ["processed"]},
            status_details=OPTIONAL_STRING,
        ),
        "FileDeleted": _whole(
            id=STRING, object={"type": "string", "enum": ["file"]}, deleted={"type": "boolean"}
        ),
        "FileList": _list("File"),
        "BatchRequest": an_object(
            ("input_file_id", "endpoint"),
            {
                "input_file_id": described(STRING, "A file that was uploaded for a batch.", minLength=1),
                "endpoint": {"type": "string", "enum": list(ENDPOINTS)},
                "completion_window": described(
                    OPTIONAL_STRING,
                    "Hours, `24h` if absent; what has not been run by then is not run.",
                    pattern=_WINDOW,
                ),
                "metadata": _metadata(),
                "output_expires_after": {
                    **_whole(anchor={"type": "string", "enum": ["created_at"]}, seconds=_AGE),
                    "nullable": True,
                },
            },
        ),
        "Batch": _batch(),
        "BatchList": _list("Batch"),
    }


def _batch() -> Schema:
    times = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    problem = _whole(
        code=STRING, message=STRING, param=OPTIONAL_STRING, line={"type": "integer", "nullable": True}
    )
    problems = _whole(object={"type": "string", "enum": ["list"]}, data=list_of(problem))
    return _whole(
        id=STRING,
        object={"type": "string", "enum": ["batch"]},
        endpoint=STRING,
        errors={**problems, "nullable": True},
        input_file_id=STRING,
        completion_window=STRING,
        status={"type": "string", "enum": list(BatchStatus)},
        output_file_id=OPTIONAL_STRING,
        error_file_id=OPTIONAL_STRING,
        created_at=_TIME,
        expires_at=_TIME,
        **{f"{name}_at": _TIME_OR_NULL for name in times},
        request_counts=_whole(total=COUNT, completed=COUNT, failed=COUNT),
        metadata=_metadata(),
        usage=described(
            _whole(
                input_tokens=COUNT,
                input_tokens_details=_whole(cached_tokens=COUNT),
                output_tokens=COUNT,
                output_tokens_details=_whole(reasoning_tokens=COUNT),
                total_tokens=COUNT,
            ),
            "Tokens that were read; what else OpenAI counts is 0.",
        ),
    )


def _metadata() -> Schema:
    return {
        "type": "object",
        "nullable": True,
        "maxProperties": MAX_METADATA,
        "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE},
    }


def _list_files() -> dict[str, Any]:
    order: Schema = {"type": "string", "enum": ["asc", "desc"]}
    return _operation(
        "The files",
        "FileList",
        400,
        404,
        parameters=[*_paging(10_000), _parameter("order", "query", order), _parameter("purpose", "query")],
    )


def _list_batches() -> dict[str, Any]:
    return _operation("The batches, newest first", "BatchList", 400, 404, parameters=_paging(100))


def _create_batch() -> dict[str, Any]:
    operation = _operation("Run the requests of a file", "Batch", 400, 404, 408, 413, 415, 429)
    operation["requestBody"] = {"required": True, "content": as_json(reference("BatchRequest"))}
    return operation


def _upload() -> dict[str, Any]:
    form = an_object(
        ("purpose", "file"),
        {
            "purpose": {"type": "string", "enum": ["batch"]},
            "file": described(
                _BYTES, "One request a line: custom_id, method, url and body as a JSON object."
            ),
            "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
            "expires_after[seconds]": _AGE,
        },
    )
    operation = _operation("Upload a file", "File", 400, 404, 408, 413, 415)
    operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    return operation


def _read_content(parameters: list[Schema]) -> dict[str, Any]:
    operation = _operation("What is in a file", "File", 404, parameters=parameters)
    content = {"application/octet-stream": {"schema": _BYTES}}
    plain = {"text/plain": {"schema": STRING}}
    parts = {**content, "multipart/byteranges": {"schema": _BYTES}}
    operation["responses"] |= {
        "200": {"description": "Done", "content": content, "headers": headers(_OF_A_FILE)},
        "206": {
            "description": "The part that a range asks for, or several",
            "content": parts,
            "headers": headers((*_OF_A_FILE, "content-range")),
        },
        "400": {"description": "The range cannot be read", "content": plain},
        "416": {
            "description": "The file ends before the range",
            "content": plain,
            "headers": headers(("content-range",)),
        },
    }
    return operation


def _operation(
    summary: str, answer: str, *statuses: int, parameters: Iterable[Schema] = ()
) -> dict[str, Any]:
    """What every route of this family has in common: it may also not be ready yet, or stopping."""
    problems = {str(status): problem_response("An error") for status in (*statuses, 503)}
    done = {"description": "Done", "content": as_json(reference(answer))}
    return {"summary": summary, "parameters": list(parameters), "responses": {"200": done, **problems}}


def _paging(most: int) -> list[Schema]:
    limit: Schema = {"type": "integer", "minimum": 1, "maximum": most}
    return [
        _parameter("limit", "query", limit),
        _parameter("after", "query", described(STRING, "The id that the page before ended with.")),
    ]


def _parameter(name: str, place: str, schema: Schema = STRING) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _list(name: str) -> Schema:
    return _whole(
        object={"type": "string", "enum": ["list"]},
        data=list_of(reference(name)),
        first_id=OPTIONAL_STRING,
        last_id=OPTIONAL_STRING,
        has_more={"type": "boolean"},
    )


def _whole(**properties: Schema) -> dict[str, Any]:
    """An object that has all of `properties`."""
    return an_object(tuple(properties), properties)
