"""The cores that we count are those that we may use."""

from pathlib import Path

import pytest

from vecmill.hardware.budget import CoreBudget
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


def test_a_budget_never_gives_more_than_it_has() -> None:
    budget = CoreBudget(3)
    condition = budget.join(lambda: True)
    with budget.lock:
        assert budget.may_take(2, condition)
        budget.take(2, condition, 0.1)
        assert not budget.may_take(2, condition)
        budget.take(1, condition, 0.1)
        budget.give_back(2)
    assert budget.free == 2


def test_cores_go_to_the_model_that_has_received_least() -> None:
    budget = CoreBudget(1)
    wants = {"a": True, "b": True}
    conditions = {name: budget.join(lambda name=name: wants[name]) for name in wants}  # type: ignore[misc]
    taken = []
    with budget.lock:
        for _ in range(6):
            name = next(name for name in wants if budget.may_take(1, conditions[name]))
            taken.append(name)
            budget.take(1, conditions[name], 3.0 if name == "a" else 1.0)
            budget.give_back(1)
    assert taken == ["a", "b", "b", "b", "a", "b"]


def test_only_models_with_work_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = CoreBudget(2)
    woken: list[str] = []
    idle, waiting = budget.join(lambda: False), budget.join(lambda: True)
    monkeypatch.setattr(idle, "notify", lambda: woken.append("idle"))
    monkeypatch.setattr(waiting, "notify", lambda: woken.append("waiting"))
    with budget.lock:
        budget.take(2, waiting, 1.0)
        budget.give_back(2)
    assert woken == ["waiting"]


def test_a_model_without_work_gets_no_credit() -> None:
    budget = CoreBudget(1)
    wants = {"a": True, "b": False}
    first, second = budget.join(lambda: wants["a"]), budget.join(lambda: wants["b"])
    with budget.lock:
        for _ in range(5):
            budget.take(1, first, 1.0)
            budget.give_back(1)
        wants["b"] = True
        budget.take(1, second, 1.0)
        budget.give_back(1)
        assert budget.may_take(1, first)


def test_more_cores_than_there_are_get_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    there = available_cores()
    assert (count_cores(None), count_cores(there)) == (there, there)
    assert caplog.messages == []
    assert count_cores(there + 62) == there + 62
    (told,) = caplog.messages
    assert told.startswith(f"{there + 62} cores are asked for, and this process may use {there} ")
