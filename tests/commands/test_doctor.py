"""`vecmill doctor`: what a bug report needs, and no secret."""

import os
import resource
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from vecmill.commands.doctor import bug_report
from vecmill.commands.main import main
from vecmill.engines import list_engine_names
from vecmill.hardware.processor import instruction_sets

SECRETS = {
    "HF_TOKEN": "hf_planted",
    "HTTPS_PROXY": "http://planted:planted@proxy.example:3128",
    "https_proxy": "http://planted:planted@proxy.example:3128",
    "VECMILL_API_KEY": "planted-key",
    "VECMILL_METRICS_KEY": "planted-metrics",
    "HF_ENDPOINT": "https://planted@hub.example",
    "MY_OWN_PASSWORD": "planted",
}


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["doctor", *arguments])
    assert (result.exit_code, result.exception) == (0, None)
    return result.output


def sections(report: str) -> dict[str, list[str]]:
    """Return the lines of each section by its heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in report.splitlines():
        if line.startswith(" "):
            found[heading].append(line.strip())
        else:
            heading = line
            found[heading] = []
    return found


def test_the_report_names_versions_machine_limits_engines_and_caches(tmp_path: Path) -> None:
    found = sections(run("--cache-dir", str(tmp_path)))
    assert list(found) == ["versions", "machine", "limits", "caches", "environment", "engines", "findings"]
    versions = {line.split()[0]: line.split()[1] for line in found["versions"]}
    assert versions["vecmill"] == version("vecmill")
    assert versions["vecmill-server"] == version("vecmill-server")
    assert {"numpy", "onnxruntime", "tokenizers", "uvicorn"} <= versions.keys()
    assert {line.split()[0] for line in found["engines"][1:]} == set(list_engine_names())
    assert found["caches"][0].startswith(f"prepared models    0 in {tmp_path}; ")
    assert any(line.startswith("cores") and "NUMA" in line for line in found["machine"])


def test_no_value_of_the_environment_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    printed = run("--cache-dir", str(tmp_path))
    assert "planted" not in printed
    (names,) = sections(printed)["environment"]
    assert SECRETS.keys() - {"MY_OWN_PASSWORD"} <= set(names.removeprefix("set").strip().split(", "))


def test_what_stands_in_the_way_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=5_000_000))
    monkeypatch.setattr(bug_report, "available_mb", lambda: 300.0)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 1_024))
    built_with(monkeypatch, "'--prefix=/home/me/.pyenv/versions/3.11.7'", "/home/me/.pyenv/versions/3.11.7")
    findings = sections(run("--cache-dir", str(tmp_path / "later")))["findings"]
    assert findings == [
        f"The disk of {tmp_path} has 5 MB free. Free space, or choose --cache-dir.",
        "Only 300 MB of memory are available.",
        "/home/me/.pyenv/versions/3.11.7 has a Python that was built without --enable-optimizations, as "
        "pyenv does by default. The server's own work takes 1.2 times as long. Build it with the option, or "
        "use the system's Python.",
        "The limit of 256 file descriptors is less than --max-connections of the server by default. Raise "
        "the limit (ulimit -n), or lower --max-connections.",
    ]


@pytest.mark.parametrize(
    ("arguments", "prefix", "is_optimized"),
    [
        ("'--enable-optimizations' '--with-lto'", "/usr/local", True),
        ("'--enable-shared' '--prefix=/usr'", "/usr", True),  # Debian's, which does not name the option
        (None, "C:/Python", True),  # nothing is known
        ("'--prefix=/opt/python'", "/opt/python", False),
    ],
)
def test_a_python_without_optimisation_is_named(
    arguments: str | None, prefix: str, is_optimized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_with(monkeypatch, arguments, prefix)
    found = sections(run("--cache-dir", str(tmp_path)))
    assert ("built without" not in found["versions"][0]) is is_optimized
    assert any(f"{prefix} has a Python" in each for each in found["findings"]) is not is_optimized


def built_with(monkeypatch: pytest.MonkeyPatch, arguments: str | None, prefix: str) -> None:
    """Let the Python of the test be one that was configured with `arguments` for `prefix`."""
    monkeypatch.setattr("sysconfig.get_config_var", {"CONFIG_ARGS": arguments}.get)
    monkeypatch.setattr(sys, "base_prefix", prefix)


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    report = sections(run("--cache-dir", str(tmp_path)))
    assert "which this user cannot write" in report["caches"][0]
    assert report["findings"][0].startswith(f"{tmp_path} cannot be written, so each start prepares")


def test_instructions_are_read_from_the_system(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags\t\t: sse avx2 avx avx512_vnni\nflags: fma\n")
    assert instruction_sets(tmp_path) == ("avx", "avx2", "avx512_vnni")
    assert instruction_sets(tmp_path / "nowhere") == ()
