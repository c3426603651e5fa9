"""`vecmill deploy render`: what it prints, and what it does to files that are there already."""

import shlex
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deployment.configurations import CASES, CONFIGURATIONS, SMALL, render_text
from support.source_tree import ROOT
from vecmill.errors import InvalidConfig
from vecmill_server.deploy.command import Target, deploy
from vecmill_server.deploy.rendered_files import DIGESTS_FILE


def run(folder: Path, text: str, *options: str, target: str = "systemd") -> Result:
    path = folder / "vecmill.toml"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(deploy, ["render", "--target", target, str(path), *options])


def test_the_command_is_found_by_the_library() -> None:
    text = (ROOT / "services/vecmill_server/pyproject.toml").read_text("utf-8")
    assert 'deploy = "vecmill_server.deploy.command:deploy"' in text
    assert EntryPoint("deploy", "vecmill_server.deploy.command:deploy", "vecmill.commands").load() is deploy


def test_the_command_prints_the_files_and_what_to_run_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(tmp_path, SMALL)
    assert result.exit_code == 0, result.output
    written = [line.removeprefix("wrote ") for line in result.output.splitlines() if "wrote" in line]
    assert written == ["systemd/vecmill.toml", "systemd/vecmill.service", "systemd/vecmill.socket"]
    assert all(Path(name).is_file() for name in written)
    commands = result.output.partition("Next:\n")[2].splitlines()
    assert commands[0] == "  sudo install -D -m 644 systemd/vecmill.toml /etc/vecmill/vecmill.toml"


@pytest.mark.parametrize(("target", "name"), CASES)
def test_each_command_is_one_for_a_shell_and_names_written_files(
    tmp_path: Path, target: Target, name: str
) -> None:
    rendering = render_text(tmp_path, target, CONFIGURATIONS[name])
    assert rendering.commands
    written = {str(Path("out") / file) for file in rendering.files} | {"out/vecmill"}
    for command in rendering.commands:
        named = {word for word in shlex.split(command) if word.startswith("out/")}
        assert named <= written, command


def test_a_second_call_changes_only_what_the_configuration_changes(tmp_path: Path) -> None:
    output = ("-o", str(tmp_path / "out"))
    run(tmp_path, SMALL, *output)
    result = run(tmp_path, SMALL, *output)
    assert "wrote" not in result.output
    assert f"unchanged: 3 files in {tmp_path}/out" in result.output
    result = run(tmp_path, "[server]\nport = 8001", *output)
    assert f"wrote {tmp_path}/out/vecmill.socket" in result.output
    assert f"wrote {tmp_path}/out/vecmill.service" not in result.output
    assert "127.0.0.1:8001" in (tmp_path / "out/vecmill.socket").read_text()


def test_what_a_person_changed_is_kept_until_it_is_forced(tmp_path: Path) -> None:
    output = ("-o", str(tmp_path / "out"))
    run(tmp_path, SMALL, *output)
    service, socket = tmp_path / "out/vecmill.service", tmp_path / "out/vecmill.socket"
    service.write_text("[Service]\n")
    result = run(tmp_path, "[server]\nport = 8001", *output)
    assert isinstance(result.exception, InvalidConfig)
    assert str(service) in result.exception.message
    assert str(socket) not in result.exception.message
    assert "systemctl edit vecmill.service" in result.exception.message
    assert service.read_text() == "[Service]\n"
    assert "7997" in socket.read_text()  # nothing was written
    result = run(tmp_path, "[server]\nport = 8001", *output, "--force")
    assert result.exit_code == 0, result.output
    assert "ExecStart" in service.read_text()


def test_files_that_are_not_of_this_command_are_kept(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/vecmill.socket").write_text("mine")
    result = run(tmp_path, SMALL, "-o", str(tmp_path / "out"))
    assert isinstance(result.exception, InvalidConfig)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["vecmill.socket"]


def test_the_files_of_another_server_are_kept_until_they_are_removed_by_force(tmp_path: Path) -> None:
    output = ("-o", str(tmp_path / "out"))
    run(tmp_path, SMALL, *output)
    (tmp_path / "vecmill.toml").rename(tmp_path / "search.toml")
    command = ["render", "--target", "systemd", str(tmp_path / "search.toml"), *output]
    refused = CliRunner().invoke(deploy, command)
    assert isinstance(refused.exception, InvalidConfig)
    assert "has the files of vecmill, which may be running with them" in refused.exception.message
    assert "Name another directory for search with --output" in refused.exception.message
    result = CliRunner().invoke(deploy, [*command, "--force"])
    assert f"removed {tmp_path}/out/vecmill.service" in result.output
    names = {"search.toml", "search.service", "search.socket", DIGESTS_FILE}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names


def test_the_configuration_file_may_be_in_the_output_directory(tmp_path: Path) -> None:
    for text in (SMALL, "[server]\nport = 8001\n"):
        result = run(tmp_path, text, "-o", str(tmp_path), target="compose")
        assert result.exit_code == 0, result.output
        assert (tmp_path / "vecmill.toml").read_text() == text
    assert '"127.0.0.1:8001:7997"' in (tmp_path / "compose.yaml").read_text()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    result = run(tmp_path, SMALL, "-o", str(tmp_path / "out"))
    assert isinstance(result.exception, InvalidConfig)
    assert "cannot be written: " in result.exception.message


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(deploy, ["render", "--target", "compose", str(tmp_path / "none.toml")])
    assert isinstance(result.exception, InvalidConfig)
    assert result.exception.message.endswith("none.toml cannot be read: No such file or directory.")
