"""How the processors of this machine lie: which share a core, and which a NUMA node.

A call over many cores waits for its slowest part after every operator. Two processors of one core (SMT)
share its multipliers, and memory of another node is far, so a wide call gets one processor of each core of
one node, and not more than an operator over a few hundred tokens can be cut into. What is left goes to other
calls: throughput comes from narrow ones.

    sys/devices/system/node/node0/cpulist                      0-31,64-95
    sys/devices/system/cpu/cpu3/topology/core_cpus_list        3,67 (thread_siblings_list before Linux 5.3)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vecmill.cores import usable_processors

# From here on the parts of an operator are so small that handing them out takes as long as computing them.
WIDEST_CALL = 16

_SIBLING_FILES = ("core_cpus_list", "thread_siblings_list")


@dataclass(frozen=True, slots=True)
class Topology:
    """The processors that may be used: for each NUMA node its cores, each of one or more processors."""

    nodes: tuple[frozenset[frozenset[int]], ...]

    @classmethod
    def read(cls, root: Path = Path("/"), processors: frozenset[int] | None = None) -> Self:
        """What the system says under `root`; without a word from it, one node of single processors.

        `processors` are the numbers of those that may be used, by default all that this process may.
        """
        usable = usable_processors() if processors is None else processors
        nodes = [node & usable for node in _read_nodes(root / "sys/devices/system/node")]
        known = frozenset().union(*nodes)
        if usable - known:
            nodes.append(usable - known)
        folder = root / "sys/devices/system/cpu"
        return cls(tuple(frozenset(_read_core(folder, one) & node for one in node) for node in nodes if node))

    def widest_call(self, cores: int) -> int:
        """How many of `cores` processors one call should be given at most, at least 1."""
        whole_node = max(len(node) for node in self.nodes)
        # Two are worth it even where they seem to share a core, which machines of a cloud do not always say.
        return min(cores, max(2, min(whole_node, WIDEST_CALL)))


def _read_nodes(folder: Path) -> Iterator[frozenset[int]]:
    for path in sorted(folder.glob("node[0-9]*")):
        listed = _read_list(path / "cpulist")
        if listed:
            yield listed


def _read_core(folder: Path, processor: int) -> frozenset[int]:
    """The processors that share a core with `processor`, itself among them."""
    for name in _SIBLING_FILES:
        listed = _read_list(folder / f"cpu{processor}/topology" / name)
        if listed:
            return listed | {processor}
    return frozenset({processor})


def _read_list(path: Path) -> frozenset[int]:
    """The numbers in a file such as "0-3,8"; none if it cannot be read."""
    try:
        parts = [part.split("-") for part in path.read_text().strip().split(",") if part]
        return frozenset(number for part in parts for number in range(int(part[0]), int(part[-1]) + 1))
    except (OSError, ValueError):
        return frozenset()
