"""What `/openapi.json` says is what a fuzzer finds that reads it: `schemathesis`, against the live server.

Bodies that the description allows are accepted, all others refused, and every answer is one of those
described. `-m full` sends forty times as many.
"""

import math
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import CHECKS, load_all_checks

from support.described_models import describe_tasks
from support.http_server import HttpServer, serve_in_thread
from vecmill.models import Task
from vecmill_server.openapi.document import describe_api
from vecmill_server.settings import ServerSettings

PATHS = describe_api(ServerSettings())["paths"]
OPERATIONS = [(path, method) for path, operations in PATHS.items() for method in operations]
# What goes on with uploads and their ids is more than a body says: `test_batches` is about them.
KEPT = re.compile("/(files|batches)")
WORK = [path for path, method in OPERATIONS if method == "post" and not KEPT.search(path)]
READS = [path for path, method in OPERATIONS if method == "get"]
MODES = tuple(schemathesis.GenerationMode)

CASES = 500
FULL_CASES = 20_000
SEED = 5

CHECK_NAMES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
MODEL_OF_PATH = {"model": f"model/{Task.EMBED}"}
# A deadline of a millisecond can be met or not.
SETTINGS = {"checks": {"not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "504"]}}}
Send = Callable[[schemathesis.Case], schemathesis.Response]

# How an error begins or goes on that another model would not have given.
OF_THE_MODEL = re.compile("[Tt]h(is|e) model")
# That two lists have as many items cannot be described.
COUNTS = "There are "


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with serve_in_thread(models=list(describe_tasks().values())) as server:
        yield server


@pytest.fixture(scope="module")
def schema(server: HttpServer) -> Any:
    url = f"http://127.0.0.1:{server.port}/openapi.json"
    return schemathesis.openapi.from_url(url, config=schemathesis.Config.from_dict(SETTINGS))


@pytest.fixture(scope="module")
def send(server: HttpServer) -> Iterator[Send]:
    load_all_checks()
    checks = [*CHECKS.get_by_names(CHECK_NAMES), accepts_valid_data]
    with requests.Session() as session:
        yield lambda case: case.call_and_validate(session=session, checks=checks)


def accepts_valid_data(_context: object, response: Any, case: schemathesis.Case) -> None:
    """Fail where a body that the description allows is refused, unless it says that the model decides."""
    assert case.meta is not None
    if case.meta.generation.mode.is_negative or response.status_code not in (400, 413, 415, 422):
        return
    definition = case.operation.definition.raw
    if "x-depends-on-model" in definition:
        return
    message = message_of(response.json())
    names = fields_of_the_model(case.operation.schema.raw_schema, definition)
    is_of_the_model = OF_THE_MODEL.search(message) or any(f"`{name}" in message for name in names)
    assert is_of_the_model or message.startswith(COUNTS), f"refused, though it is allowed: {message}"


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
    # Else no body would get further than the model of the path, which nobody serves.
    named = {"path_parameters": MODEL_OF_PATH} if "{model}" in operation.path else {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode, **named))
    def send_case(case: schemathesis.Case) -> None:
        statuses.append(send(case).status_code)

    print(f"seed {seed}")
    send_case()
    return statuses


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("path", WORK)
@pytest.mark.parametrize(
    "all_cases", [pytest.param(CASES, id="some"), pytest.param(FULL_CASES, id="all", marks=pytest.mark.full)]
)
def test_bodies_are_taken_as_described(
    schema: Any, send: Any, path: str, mode: schemathesis.GenerationMode, all_cases: int
) -> None:
    cases = math.ceil(all_cases / len(WORK) / len(MODES))
    seed = SEED if all_cases == CASES else secrets.randbits(32)
    statuses = send_cases(schema[path]["POST"], send, mode, cases, seed)
    assert len(statuses) >= cases
    assert 200 in statuses or mode.is_negative


@pytest.mark.parametrize("path", READS)
def test_what_is_read_is_as_described(schema: Any, send: Any, path: str) -> None:
    assert send_cases(schema[path]["GET"], send, schemathesis.GenerationMode.POSITIVE, 5, SEED)
