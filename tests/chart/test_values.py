"""The values of the chart agree with their schema, and the templates name only what the server has."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from click.core import ParameterSource

from chart.rendering import CHART, OTHER_VARIABLES, VALUES, serve_parameters, variables_in
from support.git_files import kept_files
from support.source_tree import ROOT
from vecmill_server.cli.serve import serve

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
TEMPLATES = "".join(path.read_text("utf-8") for path in sorted((CHART / "templates").iterdir()))
# Maps whose keys the user chooses, or whose form Kubernetes defines.
OPEN_MAPS = frozenset({"affinity", "env", "global", "nodeSelector", "podAnnotations", "podLabels"})


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "")
    found: dict[str, Any] = SCHEMA["definitions"][reference.rpartition("/")[2]] if reference else schema
    return found


def walk(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Return the schema of each value that has a name, by its path."""
    found = {path: schema} if path else {}
    for name, below in schema.get("properties", {}).items():
        found |= walk(resolve(below), f"{path}.{name}".lstrip("."))
    return found


def errors_of(**changes: Any) -> list[str]:
    values = DEFAULTS | changes
    return [error.message for error in jsonschema_rs.validator_for(SCHEMA).iter_errors(values)]


def test_the_schema_accepts_the_default_values() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    assert errors_of() == []


@pytest.mark.parametrize("path", sorted(VALUES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_schema_accepts_each_file_of_values(path: Path) -> None:
    assert errors_of(**yaml.safe_load(path.read_text("utf-8"))) == []


def test_each_value_is_described_and_none_is_unknown() -> None:
    for path, schema in walk(SCHEMA).items():
        assert schema["description"].endswith("."), path
        is_open = path in OPEN_MAPS or path.rpartition(".")[2] in (
            "annotations",
            "labels",
            "requests",
            "limits",
        )
        if schema.get("type") == "object" and not is_open:
            assert schema["additionalProperties"] is False, path
    assert SCHEMA["additionalProperties"] is False


def test_each_value_has_a_default() -> None:
    for path in walk(SCHEMA):
        colour, _, name = path.partition(".")
        if path == "global" or (colour in ("blue", "green") and name not in ("", "enabled")):
            continue
        value: Any = DEFAULTS
        for part in path.split("."):
            assert part in value, path
            value = value[part]


@pytest.mark.parametrize(
    "changes",
    [
        {"replica": 2},
        {"cache": {"persistant": True}},
        {"green": {"enabled": True, "precision": "int8"}},
        {"env": {"VECMILL_PRECISION": "int8"}},
        {"env": {"HTTPS_PROXY": {"value": "http://proxy"}}},
        {"envFrom": [{"configMap": {"name": "proxy"}}]},
        {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]},
        {"initContainers": [{"name": "vecmill", "image": "busybox"}]},
        {"ingress": {"enabled": True, "hosts": []}},
        {"httpRoute": {"enabled": True, "hostnames": ["embed.example"]}},
        {"tmp": {"size": "1ki"}},
        {"image": {"digest": "latest"}},
        {"active": "red"},
        {"replicas": -1},
        {"autoscaling": {"minReplicas": 0}},
        {"autoscaling": {"keda": {"enabled": True, "serverAddress": ""}}},
        {
            "autoscaling": {
                "hpa": {"enabled": True},
                "keda": {"enabled": True, "serverAddress": "http://prometheus"},
            }
        },
    ],
    ids=str,
)
def test_the_schema_refuses(changes: dict[str, Any]) -> None:
    assert errors_of(**changes)


def test_the_templates_name_only_variables_of_the_server() -> None:
    named = variables_in(TEMPLATES)
    assert {"VECMILL_HOST", "VECMILL_PORT", "VECMILL_API_KEY_FILE"} <= named
    assert named - set(serve_parameters()) == set()


def test_an_empty_variable_sets_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    # The chart hides variables of an image from the configuration file in this way.
    monkeypatch.setenv("VECMILL_ENGINE", "")
    monkeypatch.setenv("VECMILL_MODEL", "")
    with serve.make_context("serve", []) as context:
        assert context.params["models"] == ()
        assert context.get_parameter_source("engine") is ParameterSource.DEFAULT


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    version = (ROOT / "services/vecmill_server/pyproject.toml").read_text("utf-8").split('version = "')[1]
    assert [chart["version"], chart["appVersion"]] == [version.partition('"')[0]] * 2


def test_the_files_of_the_chart_are_kept() -> None:
    prefix = CHART.relative_to(ROOT).as_posix()
    kept = {name.removeprefix(f"{prefix}/") for name in kept_files() if name.startswith(prefix)}
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "templates/_names.tpl"} <= kept


def test_other_variables_are_those_of_the_hub_and_of_certificates() -> None:
    assert {name for name in OTHER_VARIABLES if name not in TEMPLATES} == set()
