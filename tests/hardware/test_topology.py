"""How wide a call is on machines that we do not have: their /sys, invented."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from vecmill.hardware import cores
from vecmill.hardware.cores import Topology, available_cores, lane_widths


@dataclass(frozen=True)
class Machine:
    """NUMA nodes of so many cores each, every core of so many processors, numbered as Linux does."""

    nodes: int
    cores: int
    threads: int = 1
    sibling_file: str = "core_cpus_list"

    @property
    def processors(self) -> frozenset[int]:
        return frozenset(range(self.nodes * self.cores * self.threads))

    def write(self, root: Path) -> Path:
        physical = self.nodes * self.cores
        for node in range(self.nodes):
            first = node * self.cores
            parts = [first + thread * physical for thread in range(self.threads)]
            listed = ",".join(f"{start}-{start + self.cores - 1}" for start in parts)
            _write(root / f"sys/devices/system/node/node{node}/cpulist", listed)
        for number in self.processors:
            core = number % physical
            siblings = ",".join(str(core + thread * physical) for thread in range(self.threads))
            _write(root / f"sys/devices/system/cpu/cpu{number}/topology" / self.sibling_file, siblings)
        return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


MACHINES = {
    "a small virtual machine": (Machine(1, 2), 2),
    "one core of two threads": (Machine(1, 1, 2), 2),
    "a laptop with SMT": (Machine(1, 4, 2), 4),
    "64 processors of 32 cores": (Machine(1, 32, 2), 16),
    "two nodes of 32": (Machine(2, 32), 16),
    "eight nodes of 8, as on EPYC": (Machine(8, 8, 2), 8),
    "arm64 without SMT": (Machine(1, 8), 8),
    "an older kernel": (Machine(1, 4, 2, "thread_siblings_list"), 4),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_wide_call_gets_whole_cores_of_one_node(name: str, tmp_path: Path) -> None:
    machine, widest = MACHINES[name]
    found = Topology.read(machine.write(tmp_path), machine.processors)
    assert sum(len(core) for node in found.groups for core in node) == len(machine.processors)
    assert len(found.groups) == machine.nodes
    assert found.widest_call(len(machine.processors)) == widest


def test_processors_that_may_not_be_used_do_not_count(tmp_path: Path) -> None:
    root = Machine(2, 8, 2).write(tmp_path)
    # Both threads of cores 0 to 2 on the first node, one core on the second.
    pinned = frozenset({0, 1, 2, 16, 17, 18, 8})
    found = Topology.read(root, pinned)
    assert [len(node) for node in found.groups] == [3, 1]
    assert found.widest_call(7) == 3


def test_one_thread_of_each_core_is_a_core_of_its_own(tmp_path: Path) -> None:
    root = Machine(1, 4, 2).write(tmp_path)
    assert Topology.read(root, frozenset({0, 1, 2, 3})).widest_call(4) == 4
    assert Topology.read(root, frozenset({0, 4})).widest_call(2) == 2


def test_a_quota_bounds_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(2, 32)
    root = machine.write(tmp_path)
    _write(root / "proc/self/cgroup", "0::/pod")
    _write(root / "sys/fs/cgroup/pod/cpu.max", "300000 100000")
    monkeypatch.setattr("vecmill.hardware.cores.usable_processors", lambda: frozenset(machine.processors))
    cores = available_cores(root)
    assert cores == 3
    assert Topology.read(root).widest_call(cores) == 3


def test_without_sys_every_processor_is_a_core_of_one_node(tmp_path: Path) -> None:
    found = Topology.read(tmp_path, frozenset(range(6)))
    assert len(found.groups) == 1
    assert found.widest_call(6) == 6
    assert Topology.read(tmp_path, frozenset({0})).widest_call(1) == 1


@pytest.mark.parametrize("nonsense", ["", "four", "1-", "3-x"])
def test_files_of_another_kind_are_as_if_they_were_not_there(tmp_path: Path, nonsense: str) -> None:
    _write(tmp_path / "sys/devices/system/node/node0/cpulist", nonsense)
    _write(tmp_path / "sys/devices/system/cpu/cpu0/topology/core_cpus_list", nonsense)
    assert Topology.read(tmp_path, frozenset(range(4))).widest_call(4) == 4


def test_processors_of_no_node_are_a_node(tmp_path: Path) -> None:
    _write(tmp_path / "sys/devices/system/node/node0/cpulist", "0-1")
    assert Topology.read(tmp_path, frozenset(range(8))).widest_call(8) == 6


def test_a_plan_without_widths_has_one_core_and_the_wide_call(monkeypatch: pytest.MonkeyPatch) -> None:
    two_nodes = Topology(tuple(frozenset(frozenset({core}) for core in range(8)) for _ in range(2)))
    monkeypatch.setattr(cores.Topology, "read", lambda: two_nodes)
    assert lane_widths((), 16) == (1, 4, 8)
    assert lane_widths((), 16, has_middle=False) == (1, 8)
    assert lane_widths((), 8) == (1, 4, 8)
    assert lane_widths((), 5) == (1, 5)
    assert lane_widths((), 1) == (1,)
    assert lane_widths((1, 12), 16) == (1, 12)


def test_a_process_has_processors_whatever_the_system_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill.hardware.system_calls.is_linux", lambda: False)
    monkeypatch.setattr("os.cpu_count", lambda: 10)
    assert Topology.read(Path("/nowhere")).widest_call(10) == 10
