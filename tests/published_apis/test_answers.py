"""Responses match the OpenAPI documents that TEI, Infinity and OpenAI have published.

Each request is one that a client of theirs may send. What differs is intended, and has a reason.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

import httpx
import pytest

from published_apis.apis import APIS, PREFIXES
from published_apis.cases import Case
from published_apis.document import load_document
from published_apis.servers import Server, Servers
from vecmill_server.batches.objects import BatchObject, BatchStatus, LineError

CASES = [case for api in APIS.values() for case in api.cases]
# In the order of the cases, of which some delete what others have read.
GROUPS = [(*key, [*cases]) for key, cases in groupby(CASES, key=lambda case: (case.api, case.operation))]
OPERATIONS = [(api, name) for api in APIS for name in load_document(api).operations]


def fill_in(value: Any, ids: Mapping[str, str]) -> Any:
    """Put ids in the place of their names."""
    if isinstance(value, dict):
        return {name: fill_in(each, ids) for name, each in value.items()}
    if isinstance(value, str) and re.fullmatch(r"{\w+}", value):
        return ids[value[1:-1]]
    return value


def send(server: Server, case: Case) -> httpx.Response:
    operation = load_document(case.api).operations[case.operation]
    ids = {**server.ids, **fill_in(case.ids, server.ids)}
    path = PREFIXES.get(case.api, "") + operation.path.format_map(ids)
    query = fill_in(dict(case.query), ids)
    body: dict[str, Any] = {"json": fill_in(case.json, ids)}
    if case.content is not None:
        body = {"content": case.content}
    elif case.form is not None:
        body = {"data": dict(case.form), "files": {"file": ("in.jsonl", case.file)}}
    return server.client.request(operation.method, path, params=query, **body)


@pytest.mark.promise("published-apis")
@pytest.mark.parametrize(("api", "name", "cases"), GROUPS, ids=[f"{api} {name}" for api, name, _ in GROUPS])
def test_responses_and_answered_requests_match_the_published_document(
    servers: Servers, api: str, name: str, cases: Sequence[Case]
) -> None:
    document = load_document(api)
    operation = document.operations[name]
    for case in cases:
        answer = send(servers.find(case.server), case)
        assert answer.status_code == case.status, (case.name, answer.text)
        found = document.find_mismatches_of_answer(operation, answer)
        intended = () if case.differs is None else APIS[api].differences[case.differs].mismatches
        assert found == set(intended), (case.name, answer.text)
        if case.status >= 400:
            continue
        if operation.request is None:
            assert case.json is None, case.name
        elif operation.request.media_type == "application/json":
            assert document.find_mismatches(operation.request.schema, case.json) == set(), case.name


def test_each_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in CASES]
    assert [name for name in names if names.count(name) > 1] == []


@pytest.mark.promise("published-apis")
@pytest.mark.parametrize("api", APIS)
def test_each_intended_difference_occurs_and_has_a_reason(api: str) -> None:
    found = APIS[api]
    assert {case.differs for case in found.cases} - {None} == set(found.differences)
    for difference in found.differences.values():
        assert difference.reason.endswith(".")
        assert difference.mismatches


@pytest.mark.promise("published-apis")
@pytest.mark.parametrize(("api", "name"), OPERATIONS)
def test_each_published_status_is_got_or_known_not_to_be(api: str, name: str) -> None:
    published = set(load_document(api).operations[name].responses)
    got = {case.status for case in APIS[api].cases if case.operation == name}
    unused = {status for operation, status in APIS[api].unused if operation == name}
    assert (published - got, unused & got) == (unused, set())


@pytest.mark.promise("published-apis")
@pytest.mark.parametrize(("api", "name"), OPERATIONS)
def test_each_published_field_is_accepted_or_known_not_to_be(api: str, name: str) -> None:
    document = load_document(api)
    operation = document.operations[name]
    published = {each for each in operation.parameters if f"{{{each}}}" not in operation.path}
    if operation.request is not None:
        published |= document.properties_of(operation.request.schema)
    cases = [case for case in APIS[api].cases if case.operation == name and case.status < 400]
    # Null is the same as no field.
    accepted = {
        field
        for case in cases
        for field in case.fields
        if not isinstance(case.json, dict) or case.json.get(field) is not None
    }
    refused = {field for operation, field in APIS[api].refused if operation == name}
    assert (published - accepted, refused & accepted) == (refused, set())


@pytest.mark.parametrize("status", BatchStatus)
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_batch_in_any_status_matches_the_published_document(status: BatchStatus, *, is_whole: bool) -> None:
    """With none or all of what a batch has at times. The servers of the other tests have some statuses."""
    given: dict[str, Any] = {each.name: 1 for each in fields(BatchObject)}
    given |= {name: f"a {name}" for name in given if name.endswith("id") or name in ("endpoint", "owner")}
    given |= {"status": status, "ending": status, "completion_window": "24h", "metadata": {"who": "me"}}
    given["errors"] = [LineError("a code", "a message"), LineError("a code", "a message", "a field", 1)]
    if not is_whole:
        absent = [name for name in given if name.endswith("_at") and name not in ("created_at", "expires_at")]
        given |= {**dict.fromkeys(absent), "metadata": None}
        given |= {"errors": (), "output_bytes": 0, "error_bytes": 0}
    batch = json.loads(json.dumps(BatchObject(**given).to_json()))
    assert load_document("openai").find_mismatches({"$ref": "#/schemas/Batch"}, batch) == set()
