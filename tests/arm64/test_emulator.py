"""What `make arm64` does outside its root: what it asks of a machine, and what it hands to the kernel."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from arm64.emulator import CannotEmulate, Machine, arm64_programs, describe_handler, run_inside
from arm64.references import TEXTS, Answers, read_references, write_family
from arm64.results import Difference, read_differences, write_report

PROGRAMS = frozenset({"mmdebstrap", "unshare", "chroot", "mount"})


@pytest.fixture
def binfmt(tmp_path: Path) -> Path:
    """A folder as the kernel shows it, where a registration is a file."""
    folder = tmp_path / "binfmt_misc"
    folder.mkdir()
    (folder / "register").write_text("")
    return folder


@pytest.mark.parametrize(
    ("user", "missing", "advice"),
    [
        (1000, set(), "sudo make arm64"),
        (0, {"mmdebstrap"}, "apt-get install mmdebstrap"),
        (0, {"unshare"}, "There is no unshare"),
        (0, set(), "modprobe binfmt_misc"),
    ],
    ids=["another user", "mmdebstrap", "unshare", "binfmt_misc"],
)
def test_a_machine_that_cannot_emulate_is_told_what_it_lacks(
    user: int, missing: set[str], advice: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotEmulate, match=advice):
        Machine(user, PROGRAMS - missing, tmp_path / "nowhere").require()


def test_a_machine_that_has_everything_may_emulate(binfmt: Path) -> None:
    Machine(0, PROGRAMS, binfmt).require()


def test_the_handler_matches_arm64_programs_alone() -> None:
    _, _, kind, offset, magic, mask, interpreter, flags = describe_handler(Path("/qemu"), 7).split(":")
    assert (kind, offset, interpreter, flags) == ("M", "", "/qemu", "F")
    wanted, compared = (bytes.fromhex(part.replace("\\x", "")) for part in (magic, mask))
    assert len(wanted) == len(compared) == 20

    def matches(header: bytes) -> bool:
        return all(
            have & bits == want & bits for have, want, bits in zip(header, wanted, compared, strict=True)
        )

    start = b"\x7fELF\x02\x01\x01\x00" + bytes(8)
    assert matches(start + b"\x02\x00\xb7\x00")
    assert matches(start + b"\x03\x00\xb7\x00")  # a program that can be anywhere in memory
    assert matches(b"\x7fELF\x02\x01\x01\x03" + bytes(8) + b"\x02\x00\xb7\x00")  # the ABI of Linux
    assert not matches(start + b"\x02\x00\x3e\x00")  # x86-64
    assert not matches(start + b"\x01\x00\xb7\x00")  # an object file


@pytest.mark.linux
def test_a_handler_is_registered_and_removed(binfmt: Path) -> None:
    own, dead, running = (binfmt / f"vecmill-arm64-{one}" for one in (os.getpid(), 2**22 + 1, 1))
    for handler in (own, dead, running):
        handler.write_text("enabled")
    with arm64_programs(Path("/qemu"), binfmt):
        assert (binfmt / "register").read_text() == describe_handler(Path("/qemu"), os.getpid())
        assert dead.read_text() == "-1"  # its process was killed
        assert own.read_text() == "enabled"
    assert own.read_text() == "-1"
    assert running.read_text() == "enabled"  # another emulation goes on


def test_everything_in_the_root_runs_on_one_processor_and_ends_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[list[str]] = []

    def run(line: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        lines.append(line)
        return subprocess.CompletedProcess(line, 3)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 2}, raising=False)
    status = run_inside(tmp_path, Path("/clone"), ["python3", "-V"], processor="neoverse-n1", timeout_s=1)
    assert status == 3
    (line,) = lines
    assert line[:3] == ["taskset", "--cpu-list", "2"]
    assert {"--mount", "--pid", "--kill-child"} <= set(line)
    assert "QEMU_CPU=neoverse-n1" in line
    assert line[-2:] == ["python3", "-V"]


@pytest.mark.linux
def test_a_command_that_takes_too_long_has_no_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(line: list[str], timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(line, timeout)

    monkeypatch.setattr("subprocess.run", run)
    assert run_inside(tmp_path, Path("/clone"), ["sleep"], processor="max", timeout_s=7) is None
    assert "not done after 7 s: sleep" in capsys.readouterr().out


def test_a_reference_is_computed_again_without_a_difference(tmp_path: Path) -> None:
    write_family(tmp_path / "references", "bert", tmp_path / "cache")
    (reference,) = read_references(tmp_path / "references")
    assert reference.family == "bert"
    assert reference.texts == TEXTS
    found = Answers.compute(reference.model, reference.texts, tmp_path / "other cache")
    assert found.token_ids == reference.answers.token_ids
    np.testing.assert_array_equal(found.embeddings, reference.answers.embeddings)


def test_the_report_has_the_largest_difference_and_every_test(tmp_path: Path) -> None:
    for difference in (
        Difference("bert", "fp32", 2e-7, 1.0),
        Difference("gemma", "fp32", 6e-5, 1.0),
        Difference("bert", "bf16", 3e-3, 0.9999),
    ):
        difference.append(tmp_path)
    (tmp_path / "families.xml").write_text(
        '<testsuites><testsuite><testcase name="a" time="1.5"/>'
        '<testcase name="b" time="2"><failure/></testcase></testsuite></testsuites>'
    )
    write_report(tmp_path / "report.json", tmp_path, {"families": 1, "bf16": None}, 61.4)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["seconds"] == 61
    assert report["largest"] == 6e-5
    assert report["families"]["bert bf16"] == {"largest": 3e-3, "worst_cosine": 0.9999}
    assert report["tests"]["families"]["b"] == {"outcome": "failure", "seconds": 2.0}
    assert report["tests"]["bf16"] == {}
    assert [str(one).split()[0] for one in read_differences(tmp_path)] == ["bert", "gemma", "bert"]


def test_without_results_there_is_no_largest_difference(tmp_path: Path) -> None:
    write_report(tmp_path / "report.json", tmp_path, {}, 1.0)
    assert json.loads((tmp_path / "report.json").read_text())["largest"] is None
