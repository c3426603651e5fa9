"""The description agrees with the routes and with what is really read and written."""

from typing import Any

import orjson
import pytest

from vecmill_server.openapi import describe_api
from vecmill_server.settings import ServerSettings, TokenIds


def references(value: object) -> list[str]:
    if isinstance(value, dict):
        found = [value["$ref"]] if "$ref" in value else []
        return found + [name for item in value.values() for name in references(item)]
    if isinstance(value, list):
        return [name for item in value for name in references(item)]
    return []


@pytest.mark.parametrize(
    "settings", [ServerSettings(), ServerSettings(api_key=("k",), url_prefix="/a", token_ids=TokenIds.NATIVE)]
)
def test_every_reference_leads_somewhere(settings: ServerSettings) -> None:
    document = orjson.loads(orjson.dumps(describe_api(settings)))
    schemas = document["components"]["schemas"]
    used = {name.removeprefix("#/components/schemas/") for name in references(document)}
    assert used == set(schemas)


def test_keys_are_asked_for_only_where_they_are() -> None:
    paths: dict[str, Any] = describe_api(ServerSettings(api_key=("k",)))["paths"]
    assert "security" in paths["/v1/embeddings"]["post"]
    assert "security" not in paths["/readyz"]["get"]
    assert "securitySchemes" not in describe_api(ServerSettings())["components"]


def test_work_tells_of_every_error_that_it_can_give() -> None:
    responses = describe_api(ServerSettings())["paths"]["/rerank"]["post"]["responses"]
    assert {"200", "400", "401", "404", "408", "413", "415", "429", "500", "503", "504"} == set(responses)
    assert "queue_full" in responses["429"]["description"]


def test_routes_of_tei_tell_of_their_own_errors() -> None:
    responses = describe_api(ServerSettings())["paths"]["/predict"]["post"]["responses"]
    assert {name for status, found in responses.items() for name in references(found) if status == "422"} == {
        "#/components/schemas/TeiProblem"
    }
    assert references(responses["413"]) == ["#/components/schemas/Problem"]
