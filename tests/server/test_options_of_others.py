"""An option of TEI or Infinity is refused with the name of the option to use instead."""

import re

import pytest
from click.testing import CliRunner

from vecmill.values.engine_plan import Precision
from vecmill_server.cli.options_of_others import REPLACEMENTS, VALUES
from vecmill_server.cli.serve import serve

OPTIONS = {option for parameter in serve.params for option in (*parameter.opts, *parameter.secondary_opts)}


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
    assert REPLACEMENTS.keys() & OPTIONS == set()
    for option, replacement in REPLACEMENTS.items():
        assert set(re.findall(r"--[a-z-]+", replacement)) <= OPTIONS, option
    assert set(VALUES["--dtype"].values()) <= set(Precision)
