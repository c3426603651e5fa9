"""The `vecmill` command: its own subcommands, those of others, and how it fails."""

import runpy
import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import vecmill
import vecmill_server
from vecmill.commands import main as cli
from vecmill.errors import InvalidConfig


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, arguments, prog_name="vecmill")


def install(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    """Pretend that other distributions bring these commands, and only these."""
    entries = [EntryPoint(name, value, cli.ENTRY_POINT_GROUP) for name, value in commands.items()]
    monkeypatch.setattr(cli, "entry_points", lambda group: entries if group == cli.ENTRY_POINT_GROUP else [])


@click.command()
@click.argument("model", required=False)
def grumble(model: str | None) -> None:
    """Always fails."""
    raise InvalidConfig(f"There is nothing to do with {model}.")


def test_version() -> None:
    assert run("--version").output == f"vecmill {version('vecmill')}\n"
    assert vecmill.__version__ == vecmill_server.__version__ == version("vecmill")


def test_other_names_of_the_packages_do_not_exist() -> None:
    for package in (vecmill, vecmill_server):
        with pytest.raises(AttributeError, match="__versions__"):
            _ = package.__versions__


def test_help_lists_the_commands_of_every_package() -> None:
    output = run("--help").output
    assert "describe" in output
    assert "serve" in output


@pytest.mark.parametrize(
    ("command", "package", "options"),
    [
        ("serve", "vecmill-server", "--find-links dist"),
        ("ray", "vecmill-ray", "--find-links dist --find-links dist/ray"),
    ],
)
def test_a_command_of_another_package_says_what_to_install(
    command: str, package: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    result = run(command)
    assert result.exit_code == 2
    assert f"pip install {package}" in result.output
    assert f"`{options}`" in result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    result = run("fly")
    assert result.exit_code == 2
    assert "No such command 'fly'" in result.output


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("srve", "Did you mean 'serve'?"),
        ("BAAI/bge-small-en-v1.5", "To serve this model: vecmill serve BAAI/bge-small-en-v1.5"),
        (".", "To serve this model: vecmill serve ."),
        (
            "fly",
            "The commands are bench, cache, check, compare, deploy, describe, doctor, embed, engines, "
            "evaluate, optimize, pull, serve, space.",
        ),
        ("x" * 5_000, "The commands are bench"),
    ],
)
def test_an_unknown_command_comes_with_a_suggestion(word: str, suggestion: str) -> None:
    result = run(word)
    assert result.exit_code == 2
    assert suggestion in result.output


def test_the_module_calls_itself_what_the_program_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/path/to/vecmill/__main__.py", "--fast"])
    with pytest.raises(SystemExit):
        runpy.run_module("vecmill", run_name="__main__")
    assert capsys.readouterr().err.startswith("Usage: vecmill [OPTIONS]")


def test_an_unknown_option_of_the_program_is_named() -> None:
    result = run("--fast")
    assert result.exit_code == 2
    assert "--fast" in result.output


def test_a_command_that_cannot_be_loaded_breaks_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, serve="vecmill_gone.cli:serve")
    assert run("--help").exit_code == 0
    result = run("serve", "--port", "1")
    assert result.exit_code == 1
    assert "vecmill_gone" in result.output


def test_an_entry_that_is_no_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, serve="vecmill.errors:InvalidConfig")
    assert "not a click command" in run("serve").output


def test_a_setup_error_is_one_sentence_and_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, grumble="grumbling:grumble")
    monkeypatch.setattr(EntryPoint, "load", lambda entry: grumble)
    result = run("grumble", "this")
    assert (result.exit_code, result.output) == (2, "Error: There is nothing to do with this.\n")


@pytest.mark.parametrize("arguments", [("check", "/no"), ("embed", "/no.csv", "-o", "no.npy")], ids=str)
def test_a_precision_is_called_what_it_is_called_everywhere(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--precision", "int8-fast")
    assert result.exit_code == 2
    assert "There is no" in result.output


def test_describe_says_what_the_embedded_model_is() -> None:
    result = run("describe")
    assert result.exit_code == 0
    for line in ("name           all-MiniLM-L6-v2", "dimensions     384", "longest input  256 tokens"):
        assert line in result.output.splitlines()


def test_describe_of_nothing_says_where_it_looked(tmp_path: Path) -> None:
    result = run("describe", str(tmp_path / "nothing"))
    assert result.exit_code == 2
    assert str(tmp_path / "nothing") in result.output
