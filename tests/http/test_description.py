"""What `/openapi.json` says is what a fuzzer finds that reads it: `schemathesis`, against the live server.

Bodies that the description allows are accepted, all others refused, and every answer is one of those
described, with no field and no header besides. `-m full` sends twenty thousand bodies, and some of them to
each path; else paths that are described in the same words stand for each other.
"""

import json
import math
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import AcceptedNegativeData

from support.batches import request_line, upload
from support.described_models import describe_tasks
from support.http_server import QUIET, HttpServer, serve_in_thread
from vecmill.models import Task
from vecmill_server.app import describe_routes
from vecmill_server.app.openapi.examples import EXAMPLES, needs_pictures
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.dialect_routes import routes_by_path

PATHS = describe_routes(ServerSettings())["paths"]
OPERATIONS = [(path, method) for path, operations in PATHS.items() for method in operations]
# An upload is a form, and what becomes of a batch is more than a body says: `test_batches` is about them. The
# check of a key takes no body.
KEPT = re.compile("/files|/cancel$|/check-api-key$")
WORK = [path for path, method in OPERATIONS if method == "post" and not KEPT.search(path)]
PARTS = ("parameters", "requestBody", "responses")
# The first of those that are described in the same words.
UNLIKE = {
    json.dumps([PATHS[path]["post"].get(part) for part in PARTS]): path for path in reversed(WORK)
}.values()
READS = [path for path, method in OPERATIONS if method == "get"]
MODES = tuple(schemathesis.GenerationMode)
# Their bodies are examples without effect on models of texts: `test_picture_dialects` is about them.
OF_PICTURES = {
    path
    for path, route in routes_by_path().items()
    if all(body in EXAMPLES and needs_pictures(body) for body in route.bodies)
} | {"/vectorize"}  # which may have texts alone, but rarely has

# Of each path and kind of body.
CASES = 2
FULL_CASES = math.ceil(20_000 / len(WORK) / len(MODES))
SEED = 5

CHECK_NAMES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
# How schemathesis describes that it put a number where another type may stand.
WHOLE_FLOAT = "became number"
MODELS = [f"model/{task}" for task in Task]
# What HTTP itself says of an answer.
OF_HTTP = {"connection", "content-length", "content-type", "date"}
# A deadline of a millisecond can be met or not.
SETTINGS = {"checks": {"not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "504"]}}}
Send = Callable[[schemathesis.Case], schemathesis.Response]

# How an error begins or goes on that another model would not have given.
OF_THE_MODEL = re.compile(r"[Tt]h(is|e) model|must have less than \d+ tokens|has no tokens")
# That two lists have as many items cannot be described, nor what strings are pictures, or not where, nor
# what is not for them.
COUNTS = "There are "
PICTURES = re.compile(
    "Send a picture as|server fetches none|token ids beside a picture|is for texts alone|need texts"
    "|stands beside a picture"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    settings = replace(QUIET, batch_dir=tmp_path_factory.mktemp("batches"), max_open_batches=100_000)
    with serve_in_thread(settings, models=list(describe_tasks().values())) as server:
        yield server


@pytest.fixture(scope="module")
def known(server: HttpServer) -> dict[str, str]:
    """What may stand in a path, by what comes before it."""
    file_id = upload(server.client, [request_line("a", {"input": "a"})])
    body = {"input_file_id": file_id, "endpoint": "/v1/embeddings"}
    batch_id = server.client.post("/v1/batches", json=body).json()["id"]
    model = MODELS[0]
    return {
        "files": file_id,
        "batches": batch_id,
        "models": model,
        "accuracy": model,
        "deployments": model,
        "inference": model,
        "docs": "swagger-ui.css",
    }


@pytest.fixture(scope="module")
def schema(server: HttpServer, known: dict[str, str]) -> Any:
    document = server.client.get("/openapi.json").json()
    name_what_is_there(document, known)
    close_answers(document)
    schema = schemathesis.openapi.from_dict(document, config=schemathesis.Config.from_dict(SETTINGS))
    schema.config.update(base_url=f"http://127.0.0.1:{server.port}")
    return schema


# At this path, the name in the path counts only if the body has none.
BODY_FIRST = "retrieval"


def name_what_is_there(document: Any, known: dict[str, str]) -> None:
    """Let paths and bodies name what is there alone: any other name ends in a 404."""
    for path, operations in document["paths"].items():
        places = re.findall(r"(\w+)/{\w+}", path)
        for operation in operations.values():
            named = [given for given in operation.get("parameters", ()) if given["in"] == "path"]
            for parameter, place in zip(named, places, strict=True):
                if place != BODY_FIRST:
                    parameter["schema"]["enum"] = [known[place]]
    schemas = document["components"]["schemas"]
    schemas["BatchRequest"]["properties"]["input_file_id"]["enum"] = [known["files"]]
    for schema in schemas.values():
        model = schema.get("properties", {}).get("model", {})
        if "x-depends-on-model" in model:
            model["enum"] = [*MODELS, None]
    ranking = schemas["NvidiaPathRankRequest"]
    ranking["properties"]["model"]["enum"] = MODELS
    ranking["required"].append("model")


def close_answers(document: Any) -> None:
    """Let the objects of an answer have what is described and nothing else."""
    responses = [
        response
        for operations in document["paths"].values()
        for operation in operations.values()
        for response in operation["responses"].values()
    ]
    for response in responses:
        if "content" not in response:  # a probe's answer without a body
            continue
        response["content"] = close(document, response["content"])


def close(document: Any, value: Any) -> Any:
    """A schema of an answer, with what it refers to in its place."""
    if isinstance(value, list):
        return [close(document, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return close(document, document["components"]["schemas"][value["$ref"].rpartition("/")[2]])
    closed = {name: close(document, item) for name, item in value.items()}
    return {"additionalProperties": False, **closed} if "properties" in closed else closed


@pytest.fixture(scope="module")
def send(server: HttpServer) -> Iterator[Send]:
    load_all_checks()
    (refuses,) = CHECKS.get_by_names(["negative_data_rejection"])

    def refuses_invalid_data(context: Any, response: Any, case: schemathesis.Case) -> bool | None:
        try:
            return bool(refuses(context, response, case)) or None
        except AcceptedNegativeData as failure:
            # JSON Schema takes 5.0 for an integer, which schemathesis forgets.
            if WHOLE_FLOAT in str(failure.message) and has_whole_float(case.body):
                return None
            raise

    own = (refuses_invalid_data, accepts_valid_data, has_described_headers_alone)
    checks = [*CHECKS.get_by_names(CHECK_NAMES), *own]
    with requests.Session() as session:
        yield lambda case: case.call_and_validate(session=session, checks=checks)


def has_whole_float(value: object) -> bool:
    """Whether a float without a fraction is in a body."""
    if isinstance(value, dict):
        return any(map(has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


def accepts_valid_data(_context: object, response: Any, case: schemathesis.Case) -> None:
    """Fail where a body that the description allows is refused, unless it says that the model decides."""
    assert case.meta is not None
    if case.meta.generation.mode.is_negative or response.status_code not in (400, 413, 415, 422):
        return
    body = case.operation.definition.raw["requestBody"]
    message = message_of(response.json())
    names = fields_of_the_model(case.operation.schema.raw_schema, body)
    is_of_the_model = OF_THE_MODEL.search(message) or any(f"`{name}" in message for name in names)
    is_undescribed = message.startswith(COUNTS) or PICTURES.search(message)
    assert is_of_the_model or is_undescribed, f"refused, though it is allowed: {message}"


def has_described_headers_alone(_context: object, response: Any, case: schemathesis.Case) -> None:
    """Fail where an answer has a header that the description does not name."""
    described = case.operation.definition.raw["responses"][str(response.status_code)]["headers"]
    assert set(response.headers) - OF_HTTP <= set(described)


def message_of(document: Any) -> str:
    error = document["error"]
    return str(error if isinstance(error, str) else error["message"])


def fields_of_the_model(document: Any, value: Any) -> set[str]:
    """The fields in a definition of which the model decides what is accepted."""
    if isinstance(value, list):
        return {name for item in value for name in fields_of_the_model(document, item)}
    if not isinstance(value, dict):
        return set()
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return fields_of_the_model(document, document["components"]["schemas"][name])
    marked = {name for name, item in value.items() if isinstance(item, dict) and "x-depends-on-model" in item}
    return marked | {name for item in value.values() for name in fields_of_the_model(document, item)}


def send_cases(
    operation: Any, send: Send, mode: schemathesis.GenerationMode, cases: int, seed: int
) -> list[int]:
    """Send `cases` cases of an operation, or as many as it has; gives the statuses of the answers."""
    statuses: list[int] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def send_case(case: schemathesis.Case) -> None:
        statuses.append(send(case).status_code)

    print(f"seed {seed}")
    send_case()
    return statuses


@pytest.mark.promise("described-api", "malformed-input")
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    ("path", "cases"),
    [
        *(pytest.param(path, CASES, id=f"{path}-some") for path in UNLIKE),
        *(pytest.param(path, FULL_CASES, id=f"{path}-all", marks=pytest.mark.full) for path in WORK),
    ],
)
def test_bodies_are_taken_as_described(
    schema: Any, send: Any, path: str, mode: schemathesis.GenerationMode, cases: int
) -> None:
    seed = SEED if cases == CASES else secrets.randbits(32)
    statuses = send_cases(schema[path]["POST"], send, mode, cases, seed)
    assert len(statuses) >= cases
    # What is generated for a picture is none.
    assert 200 in statuses or mode.is_negative or path in OF_PICTURES


@pytest.mark.promise("described-api")
@pytest.mark.parametrize("path", READS)
def test_what_is_read_is_as_described(schema: Any, send: Any, path: str) -> None:
    statuses = send_cases(schema[path]["GET"], send, schemathesis.GenerationMode.POSITIVE, 3, SEED)
    assert {200, 204} & {*statuses}
