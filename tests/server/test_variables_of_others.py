"""One warning names the environment variables of TEI and Infinity, with the variables to use instead."""

import logging
import re
import subprocess
import sys

import pytest

from support.source_tree import ROOT
from vecmill_server.cli.options_of_others import REPLACEMENTS
from vecmill_server.cli.serve import serve
from vecmill_server.cli.variables_of_others import (
    INFINITY,
    TEI_GENERIC,
    TEI_SIGNS,
    find_variables,
    warn_of_variables,
)

PARAMETERS = {parameter.name for parameter in serve.params}
TEI = {"MODEL_ID": "a/b", "PORT": "80", "DTYPE": "float16", "API_KEY": "secret", "HOSTNAME": "c0ffee"}
NAMED_BY_TEI = ["API_KEY", "DTYPE", "MODEL_ID", "PORT"]
INFINITY_OPTIONS = {
    "INFINITY_MODEL_ID": "use VECMILL_MODEL",
    "INFINITY_DTYPE": "use VECMILL_PRECISION",
    "INFINITY_BATCH_SIZE": "use VECMILL_MAX_BATCH_TOKENS",
    "INFINITY_PERMISSIVE_CORS": "use VECMILL_CORS_ORIGIN=*",
    "INFINITY_COMPILE": "use VECMILL_ENGINE=torch-compile",
    "INFINITY_DEVICE_ID": "use VECMILL_DEVICE",
    "INFINITY_PORT": "use VECMILL_PORT",
    "INFINITY_API_KEY": "use VECMILL_API_KEY",
    "INFINITY_QUEUE_SIZE": "use VECMILL_MAX_QUEUE_TEXTS",
    "INFINITY_MAX_CLIENT_BATCH_SIZE": "use VECMILL_MAX_INPUTS",
    "INFINITY_HOME": "use HF_HOME",
    "INFINITY_MODEL_WARMUP": "not needed",
    "INFINITY_REVISION": "a part of the model's name: owner/name@VALUE",
    "INFINITY_PRELOAD_ONLY": "the command `vecmill pull MODEL`",
}


def names(environment: dict[str, str], *given: str) -> list[str]:
    return [variable.name for variable in find_variables(environment, given)]


@pytest.mark.parametrize("name", INFINITY_OPTIONS)
def test_a_variable_of_infinity_has_a_replacement(name: str) -> None:
    (found,) = find_variables({name: "1"}, ())
    assert (found.name, found.advice) == (name, INFINITY_OPTIONS[name])


def test_all_replacements_are_variables_that_the_server_reads() -> None:
    options = {option[2:].replace("-", "_").upper() for option in REPLACEMENTS if option.startswith("--")}
    environment = dict.fromkeys([*TEI_SIGNS, *TEI_GENERIC, *(INFINITY + option for option in options)], "1")
    found = find_variables(environment, ())
    assert len(found) == len(environment)
    for variable in found:
        assert variable.advice, variable.name
        named = re.findall("VECMILL_([A-Z_]+)", variable.advice)
        assert {"models" if name == "MODEL" else name.lower() for name in named} <= PARAMETERS, variable


def test_generic_names_alone_are_another_program_s() -> None:
    assert names(dict.fromkeys(TEI_GENERIC, "1")) == []
    assert names({"INFINITY_API_URL": "http://infinity:7997", "HOSTNAME": "c0ffee", "PATH": "/bin"}) == []
    assert names(TEI) == NAMED_BY_TEI


def test_a_variable_that_is_replaced_is_not_named() -> None:
    assert names(TEI, "precision", "port") == ["API_KEY", "MODEL_ID"]
    assert names(TEI, "models") == []
    assert names({**TEI, "MAX_CLIENT_BATCH_SIZE": "64"}, "models", "api_key", "port") == [
        "DTYPE",
        "MAX_CLIENT_BATCH_SIZE",
    ]
    assert names({"INFINITY_HOME": "/data", "HF_HOME": "/data"}) == []


def test_the_address_of_a_kubernetes_service_is_not_a_setting() -> None:
    """A service called infinity sets these in every container of its namespace."""
    links = {"INFINITY_PORT": "tcp://10.0.0.7:7997", "INFINITY_SERVICE_HOST": "10.0.0.7"}
    assert names(links) == []


def test_the_warning_is_one_line_without_values(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_variables(TEI, ())
    warn_of_variables({"PATH": "/bin"}, ())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "environment variables of another server are not read: API_KEY (use VECMILL_API_KEY), "
        "DTYPE (use VECMILL_PRECISION), MODEL_ID (use VECMILL_MODEL), PORT (use VECMILL_PORT)"
    )


def test_serve_warns_before_it_loads_a_model() -> None:
    environment = {**TEI, "VECMILL_PRECISION": "fp32", "INFINITY_MODEL_ID": "a/b"}
    command = [sys.executable, "-m", "vecmill", "serve", "--port", "99999"]
    done = subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (warning,) = [line for line in done.stderr.splitlines() if "another server" in line]
    assert "API_KEY (use VECMILL_API_KEY), INFINITY_MODEL_ID (use VECMILL_MODEL), MODEL_ID" in warning
    assert not {"DTYPE", "PORT (", "secret"} & set(re.findall(r"DTYPE|PORT \(|secret", warning))


def test_the_page_has_the_variables_that_are_not_options() -> None:
    page = (ROOT / "docs/moving-in.md").read_text("utf-8")
    for name in ("INFINITY_MODEL_ID", "INFINITY_QUEUE_SIZE", "INFINITY_HOME", "MODEL_ID"):
        assert f"`{name}`" in page
