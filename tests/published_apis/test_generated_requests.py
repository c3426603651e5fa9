"""Whatever request the published documents allow, the response is one that they have or an intended one."""

import json
import math
import secrets
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.core import NotSet

from published_apis.apis import APIS, PREFIXES
from published_apis.document import load_document, restore_document
from published_apis.servers import Servers

POSTED = [
    (api, name)
    for api in APIS
    for name, operation in load_document(api).operations.items()
    if operation.request is not None and operation.request.media_type == "application/json"
]
# Bodies that the document allows, and others.
MODES = tuple(schemathesis.GenerationMode)
CASES = 160
FULL_CASES = 20_000
SEED = 7


def describe_operation(api: str, name: str, file_id: str) -> Any:
    """An operation for schemathesis. The only input file of batches is one that there is."""
    facts = restore_document(api)
    if api == "openai":
        batch = facts["components"]["schemas"]["CreateBatchRequest"]
        batch["properties"]["input_file_id"]["enum"] = [file_id]
        # Of nine endpoints, one is served: without this, whether it is drawn would depend on chance.
        batch["properties"]["endpoint"]["enum"] = ["/v1/embeddings", "/v1/responses"]
    operation = load_document(api).operations[name]
    return schemathesis.openapi.from_dict(facts)[operation.path][operation.method]


def encode_body(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"" if isinstance(body, NotSet) else json.dumps(body, default=str).encode()


@pytest.mark.promise("published-apis")
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("api", "name"), POSTED)
@pytest.mark.parametrize(
    "all_cases", [pytest.param(CASES, id="some"), pytest.param(FULL_CASES, id="all", marks=pytest.mark.full)]
)
def test_a_response_to_any_body_matches_the_published_document(
    servers: Servers, api: str, name: str, mode: schemathesis.GenerationMode, all_cases: int
) -> None:
    document, server = load_document(api), servers.find("any model name")
    operation, path = document.operations[name], PREFIXES.get(api, "") + document.operations[name].path
    named = {case.differs for case in APIS[api].cases if case.operation == name} - {None}
    differences = [each for key, each in APIS[api].differences.items() if key in named]
    allowed = [set(), *(set(difference.mismatches) for difference in differences)]
    described = describe_operation(api, name, server.ids["file_id"])
    seed = SEED if all_cases == CASES else secrets.randbits(32)
    statuses: set[int] = set()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=math.ceil(all_cases / len(POSTED) / len(MODES)),
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=described.as_strategy(generation_mode=mode))
    def send_body(case: schemathesis.Case) -> None:
        answer = server.client.post(path, content=encode_body(case.body))
        assert document.find_mismatches_of_answer(operation, answer) in allowed, answer.text
        statuses.add(answer.status_code)

    print(f"seed {seed}")
    send_body()
    assert statuses
    assert mode.is_negative or 200 in statuses or (name, 200) in APIS[api].unused
