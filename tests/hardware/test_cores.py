"""The cores that we count are those that we may use."""

from pathlib import Path

import pytest

from vecmill.hardware.cores import available_cores, count_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill.hardware.cores.usable_processors", lambda: frozenset(range(8)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cores(tmp_path) == 8


@pytest.mark.parametrize(("quota", "cores"), [("200000", 2), ("150000", 1), ("50000", 1), ("max", 8)])
def test_the_quota_of_a_version_2_group_counts(tmp_path: Path, quota: str, cores: int) -> None:
    files = {"proc/self/cgroup": "0::/pod/app\n", "sys/fs/cgroup/pod/app/cpu.max": f"{quota} 100000\n"}
    assert available_cores(write(tmp_path, files)) == cores


def test_the_quota_of_a_group_above_counts_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/app\n",
        "sys/fs/cgroup/pod/app/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
    }
    assert available_cores(write(tmp_path, files)) == 3


def test_inside_a_container_the_group_is_the_root(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}
    assert available_cores(write(tmp_path, files)) == 4


@pytest.mark.parametrize(("quota", "cores"), [("200000", 2), ("-1", 8)])
def test_the_quota_of_a_version_1_group_counts(tmp_path: Path, quota: str, cores: int) -> None:
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/app\n0::/\n",
        "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu/app/cpu.cfs_period_us": "100000",
    }
    assert available_cores(write(tmp_path, files)) == cores


def test_more_cores_than_there_are_get_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    there = available_cores()
    assert (count_cores(None), count_cores(there)) == (there, there)
    assert caplog.messages == []
    assert count_cores(there + 62) == there + 62
    (told,) = caplog.messages
    assert told.startswith(f"{there + 62} cores are asked for, and this process may use {there} ")
