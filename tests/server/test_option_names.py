"""Errors name an option as the operator gave it."""

import click
import pytest
from click.testing import CliRunner

from vecmill.errors import InvalidConfig
from vecmill_server.base.options import naming_options
from vecmill_server.cli.serve import serve

MESSAGE = "cores and max_batch_tokens: max_batch_tokens must be more than the cores"


def fail(arguments: list[str], environment: dict[str, str]) -> str:
    """What a command with two options says that refuses its options."""

    @click.command(context_settings={"auto_envvar_prefix": "VECMILL"})
    @click.option("--cores", type=int, default=1)
    @click.option("--max-batch-tokens", type=int, default=1)
    @click.pass_context
    def command(context: click.Context, /, **_values: object) -> None:
        with naming_options(context):
            raise InvalidConfig(MESSAGE)

    with pytest.raises(InvalidConfig) as raised:
        CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    return raised.value.message


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["--max-batch-tokens", "0"], {}, MESSAGE.replace("max_batch_tokens", "--max-batch-tokens")),
        (["--cores", "0"], {}, MESSAGE.replace("cores and", "--cores and")),
        ([], {"VECMILL_CORES": "3"}, MESSAGE.replace("cores and", "VECMILL_CORES and")),
        ([], {}, MESSAGE),
    ],
)
def test_an_option_has_the_name_by_which_it_was_given(
    arguments: list[str], environment: dict[str, str], expected: str
) -> None:
    assert fail(arguments, environment) == expected


def test_serve_names_the_option_that_it_refuses() -> None:
    for arguments, name in (
        (["--max-batch-tokens", "0"], "--max-batch-tokens"),
        (["--target-wait-s=-1"], "--target-wait-s"),
    ):
        result = CliRunner().invoke(serve, arguments)
        told = f"{result.output}{getattr(result.exception, 'message', '')}"
        assert f"{name} must be" in told, told
