"""Options and environment variables of TEI and Infinity are answered with those to use instead."""

import logging
import os
import re
import sys

import pytest
from click.testing import CliRunner

from support.forked_process import run_process
from support.source_tree import ROOT
from vecmill.values.engine_plan import Precision
from vecmill_server.cli.advice import (
    INFINITY,
    OPTIONS,
    TEI_GENERIC,
    TEI_SIGNS,
    find_variables,
    warn_of_misspelt,
    warn_of_variables,
)
from vecmill_server.cli.serve import serve

OWN_OPTIONS = {
    option for parameter in serve.params for option in (*parameter.opts, *parameter.secondary_opts)
}
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


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code == 2
    return result.output


@pytest.mark.parametrize(
    ("arguments", "replacement"),
    [
        (("--model-id", "owner/name"), "a plain argument, vecmill serve owner/name"),
        (("--model-id=owner/name",), "a plain argument, vecmill serve owner/name"),
        (("--dtype", "float16"), "--precision fp16"),
        (("--dtype", "bfloat16"), "--precision bf16"),
        (("--dtype", "auto"), "not needed for the default, else --precision with fp32, fp16, bf16 or int8"),
        (("--batch-size", "64"), "--max-batch-tokens N. Batches are bounded in tokens, not in texts"),
        (("--hostname", "0.0.0.0"), "--host 0.0.0.0"),
        (("-p", "8080"), "--port 8080"),
        (("--json-output", "owner/name"), "--log-format json"),
        (("--served-model-name",), "--alias VALUE"),
        (("--device-id", "1"), "--device cuda:1"),
    ],
)
def test_the_message_names_the_replacement_with_its_value(
    arguments: tuple[str, ...], replacement: str
) -> None:
    option = arguments[0].partition("=")[0]
    assert refusal(*arguments).endswith(f"  {option}: {replacement}\n")


def test_all_options_of_a_command_line_are_explained_at_once() -> None:
    text = refusal("--model-id", "a/b", "--port", "80", "--dtype", "float32", "--pooling", "cls")
    lines = [line.partition(":")[0].strip() for line in text.splitlines() if line.startswith("  --")]
    assert lines == ["--model-id", "--dtype", "--pooling"]


def test_an_unknown_option_is_still_only_unknown() -> None:
    text = refusal("--prot", "80")
    assert "--prot" in text
    assert "--port" in text
    assert "another server" not in text


def test_every_replacement_is_an_option_that_exists() -> None:
    assert OPTIONS.keys() & OWN_OPTIONS == set()
    for option, advice in OPTIONS.items():
        assert set(re.findall(r"--[a-z-]+", advice.text + advice.otherwise)) <= OWN_OPTIONS, option
    assert set(OPTIONS["--dtype"].names.values()) <= set(Precision)


def names(environment: dict[str, str], *given: str) -> list[str]:
    return list(find_variables(environment, given))


@pytest.mark.parametrize("name", INFINITY_OPTIONS)
def test_a_variable_of_infinity_has_a_replacement(name: str) -> None:
    found = find_variables({name: "1"}, ())
    assert {each: advice.short for each, advice in found.items()} == {name: INFINITY_OPTIONS[name]}


def test_all_replacements_are_variables_that_the_server_reads() -> None:
    options = {option[2:].replace("-", "_").upper() for option in OPTIONS if option.startswith("--")}
    environment = dict.fromkeys([*TEI_SIGNS, *TEI_GENERIC, *(INFINITY + option for option in options)], "1")
    found = find_variables(environment, ())
    assert len(found) == len(environment)
    for variable, advice in found.items():
        assert advice.short, variable
        named = re.findall("VECMILL_([A-Z_]+)", advice.short)
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


def test_a_misspelt_variable_is_named_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    environment = {"VECMILL_PROT": "80", "VECMILL_API_KEYS": "secret", "VECMILL_PORT": "1", "VECMILL_XYZ": ""}
    warn_of_misspelt(environment, PARAMETERS)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "environment variables with the prefix VECMILL_ are not read: VECMILL_API_KEYS (did you mean "
        "VECMILL_API_KEY?), VECMILL_PROT (did you mean VECMILL_PORT?), VECMILL_XYZ"
    )


def test_variables_of_other_commands_and_of_kubernetes_are_not_misspelt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    links = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_7997_TCP", "PORT_7997_TCP_ADDR")
    names = (
        *links,
        *(f"STAGE_{link}" for link in links),
        "STAGE_PORT",
        "BENCH_API_KEY",
        "MODEL",
        "CACHE_DIR",
    )
    warn_of_misspelt({**dict.fromkeys(map("VECMILL_{}".format, names), "1"), "PATH": ""}, PARAMETERS)
    warn_of_misspelt({f"VECMILL_{name.upper()}": "1" for name in PARAMETERS if name}, PARAMETERS)
    assert not caplog.records


def test_serve_warns_before_it_loads_a_model() -> None:
    environment = {**TEI, "VECMILL_PRECISION": "fp32", "INFINITY_MODEL_ID": "a/b"}
    command = [sys.executable, "-m", "vecmill", "serve", "--port", "99999"]
    done = run_process(command, env=os.environ | environment)
    assert done.returncode == 2
    (warning,) = [line for line in done.stderr.splitlines() if "another server" in line]
    assert "API_KEY (use VECMILL_API_KEY), INFINITY_MODEL_ID (use VECMILL_MODEL), MODEL_ID" in warning
    assert not {"DTYPE", "PORT (", "secret"} & set(re.findall(r"DTYPE|PORT \(|secret", warning))


def test_the_page_has_the_variables_that_are_not_options() -> None:
    page = (ROOT / "docs/compared.md").read_text("utf-8")
    for name in ("INFINITY_MODEL_ID", "INFINITY_QUEUE_SIZE", "INFINITY_HOME", "MODEL_ID"):
        assert f"`{name}`" in page
