"""The program `vecmill-server`: a server if no command is named, and every command of `vecmill`."""

import sys

import pytest

from vecmill.commands.main import main as vecmill
from vecmill_server.cli.entry import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """The arguments that the program hands to the program `vecmill`."""
    handed: list[str] = []

    def record(arguments: list[str], prog_name: str) -> None:
        assert prog_name == "vecmill-server"
        handed.extend(arguments)

    monkeypatch.setattr(sys, "argv", ["vecmill-server", *arguments])
    monkeypatch.setattr(vecmill, "main", record)
    main()
    return handed


@pytest.mark.parametrize(
    "arguments",
    [(), ("--port", "8123"), ("owner/name", "--strict"), ("./embed",), ("--help",), ("-h",)],
    ids=str,
)
def test_without_a_command_it_serves(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, *arguments) == ["serve", *arguments]


@pytest.mark.parametrize(
    "arguments",
    [("serve", "owner/name"), ("embed", "a.csv"), ("engines",), ("--version",), ("srve", "model")],
    ids=str,
)
def test_a_command_is_run_as_by_vecmill(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, *arguments) == list(arguments)


def test_its_help_is_that_of_serve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["vecmill-server", "--help"])
    with pytest.raises(SystemExit):
        main()
    output = capsys.readouterr().out
    assert output.startswith("Usage: vecmill-server serve [OPTIONS] [MODEL]...")
    assert "--port" in output
