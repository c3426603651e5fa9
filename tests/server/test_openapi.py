"""The description agrees with the routes and with what is really read and written."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from vecmill_server.app import describe_routes
from vecmill_server.app.openapi.document import SchemaCollection
from vecmill_server.base.json_schema import Component
from vecmill_server.base.settings import RerankDocument, ServerSettings, TokenIds
from vecmill_server.dialects.dialect_routes import ROUTES, routes_by_path


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
    document = orjson.loads(orjson.dumps(describe_routes(settings)))
    there = {
        f"#/components/{kind}/{name}" for kind, found in document["components"].items() for name in found
    }
    assert set(references(document)) == {name for name in there if "/securitySchemes/" not in name}


def objects_in(value: object) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in objects_in(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(found for item in value.values() for found in objects_in(item))]


def test_nothing_is_described_in_a_way_that_generators_drop() -> None:
    """They know no enum of booleans, and take an `anyOf` for all that there is to say of an object."""
    for schema in objects_in(describe_routes(ServerSettings())):
        assert not {"anyOf", "properties"} <= schema.keys()
        assert not (schema.get("type") == "boolean" and "enum" in schema)


def test_a_name_of_two_schemas_is_refused() -> None:
    collected = SchemaCollection(ServerSettings())
    collected.resolve([Component("One", {"type": "string"}), Component("One", {"type": "string"})])
    with pytest.raises(ValueError, match="two schemas have the name One"):
        collected.resolve(Component("One", {"type": "integer"}))


def test_each_path_has_one_usual_body() -> None:
    assert set(routes_by_path()) == {path for route in ROUTES for path in route.paths}
    for path in {path for route in ROUTES for path in route.paths}:
        sharing = [route for route in ROUTES if path in route.paths]
        assert [route.is_usual for route in sharing].count(True) == 1
        assert len({route.name for route in sharing}) == 1


def test_keys_are_asked_for_only_where_they_are() -> None:
    paths: dict[str, Any] = describe_routes(ServerSettings(api_key=("k",)))["paths"]
    for path, method in (("/v1/embeddings", "post"), ("/models", "get"), ("/", "post")):
        assert "security" in paths[path][method]
        assert "401" in paths[path][method]["responses"]
    for path in ("/", "/readyz", "/ping", "/metrics"):
        assert "security" not in paths[path]["get"]
        assert "401" not in paths[path]["get"]["responses"]
    assert "securitySchemes" not in describe_routes(ServerSettings())["components"]


@pytest.mark.parametrize(
    "settings",
    [
        ServerSettings(api_key=("k",)),
        ServerSettings(api_key_file=Path("keys")),
        ServerSettings(metrics_key=("k",)),
    ],
)
def test_the_schemes_of_keys_are_described_whichever_keys_there_are(settings: ServerSettings) -> None:
    document = describe_routes(settings)
    asked = {
        scheme
        for each in objects_in(document["paths"])
        for choice in each.get("security", ())
        for scheme in choice
    }
    assert asked == document["components"]["securitySchemes"].keys() == {"bearer", "header"}


def test_work_tells_of_every_error_that_it_can_give() -> None:
    responses = describe_routes(ServerSettings())["paths"]["/v1/embeddings"]["post"]["responses"]
    assert {"200", "400", "404", "408", "409", "413", "415", "429", "500", "503", "504"} == set(responses)
    assert "queue_full" in responses["429"]["description"]


def test_routes_of_several_dialects_tell_of_the_errors_of_each() -> None:
    responses = describe_routes(ServerSettings())["paths"]["/rerank"]["post"]["responses"]
    for status in ("400", "404", "429", "503"):
        names = {name.rpartition("/")[2] for name in references(responses[status]["content"])}
        assert names == {"Problem", "TeiProblem", "OllamaProblem"}
    assert "422" in responses


def test_routes_of_tei_tell_of_their_own_errors() -> None:
    responses = describe_routes(ServerSettings())["paths"]["/predict"]["post"]["responses"]
    for status in ("413", "415", "422", "424"):
        assert references(responses[status]["content"]) == ["#/components/schemas/TeiProblem"]
    assert "unsupported_task" in responses["424"]["description"]
    assert "inference_failed" not in responses["500"]["description"]


def test_token_ids_are_described_where_they_are_accepted() -> None:
    def items(policy: TokenIds) -> str:
        schemas = describe_routes(ServerSettings(token_ids=policy))["components"]["schemas"]
        return str([schemas[name]["properties"] for name in ("EmbeddingsRequest", "TeiEmbedRequest")])

    assert items(TokenIds.REFUSE).count("token ids") == 0
    assert items(TokenIds.NATIVE).count("token ids") == 4
    assert items(TokenIds.CL100K).count("token ids") == 4


@pytest.mark.parametrize(
    ("written", "schema"), [(RerankDocument.OBJECT, "object"), (RerankDocument.STRING, "string")]
)
def test_documents_of_an_answer_are_described_as_they_are_written(
    written: RerankDocument, schema: str
) -> None:
    schemas = describe_routes(ServerSettings(rerank_document=written))["components"]["schemas"]
    entry = schemas["RerankResponse"]["properties"]["results"]["items"]
    assert entry["properties"]["document"]["type"] == schema


@pytest.mark.parametrize("name", ["EmbeddingsRequest", "DeploymentEmbeddingsRequest"])
def test_late_chunking_is_described_as_what_some_models_do(name: str) -> None:
    field = describe_routes(ServerSettings())["components"]["schemas"][name]["properties"]["late_chunking"]
    assert "enum" not in field["anyOf"][0]
    assert field["x-depends-on-model"] is True
