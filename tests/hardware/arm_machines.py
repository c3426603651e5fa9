"""Arm machines as they show themselves under /proc and /sys: the values of published listings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_BASE = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm"
_N1 = f"{_BASE} lrcpc dcpop asimddp"
_V1 = (
    f"{_BASE} jscvt fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs "
    "paca pacg dcpodp svei8mm svebf16 i8mm bf16 dgh rng"
)
_GB10 = (
    f"{_BASE} jscvt fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm sb "
    "paca pacg dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm bf16 "
    "dgh bti ecv afp wfxt"
)
_APPLE = (
    f"{_BASE} jscvt fcma lrcpc dcpop sha3 asimddp sha512 asimdfhm dit uscat ilrcpc flagm sb paca pacg dcpodp "
    "flagm2 frint"
)


@dataclass(frozen=True)
class ArmMachine:
    """The part number of each processor, and what all of them share.

    `capacities` are the contents of `cpu_capacity`, and `caches` the level, type and size of each cache of
    the first processor. Both are missing on some machines.
    """

    features: str
    bogomips: str
    parts: tuple[str, ...]
    implementer: str = "0x41"
    variant: str = "0x0"
    revision: str = "1"
    tail: str = ""
    capacities: Mapping[int, int] = field(default_factory=dict)
    caches: tuple[tuple[int, str, str], ...] = ()

    @property
    def processors(self) -> frozenset[int]:
        return frozenset(range(len(self.parts)))

    def write(self, root: Path) -> Path:
        """Write the files below `root`, and return that."""
        cpuinfo = "".join(self._describe(number) for number in range(len(self.parts)))
        _write(root / "proc/cpuinfo", cpuinfo + self.tail)
        folder = root / "sys/devices/system/cpu"
        _write(root / "sys/devices/system/node/node0/cpulist", f"0-{len(self.parts) - 1}\n")
        for number, capacity in self.capacities.items():
            _write(folder / f"cpu{number}/cpu_capacity", f"{capacity}\n")
        for index, (level, kind, size) in enumerate(self.caches):
            cache = folder / f"cpu0/cache/index{index}"
            for name, value in (("level", level), ("type", kind), ("size", size)):
                _write(cache / name, f"{value}\n")
        return root

    def _describe(self, number: int) -> str:
        return (
            f"processor\t: {number}\n"
            f"BogoMIPS\t: {self.bogomips}\n"
            f"Features\t: {self.features}\n"
            f"CPU implementer\t: {self.implementer}\n"
            "CPU architecture: 8\n"
            f"CPU variant\t: {self.variant}\n"
            f"CPU part\t: {self.parts[number]}\n"
            f"CPU revision\t: {self.revision}\n\n"
        )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


_X925 = {
    **dict.fromkeys(range(5), 718),
    **dict.fromkeys(range(5, 10), 997),
    **dict.fromkeys(range(10, 15), 731),
    **dict.fromkeys(range(15, 19), 1017),
    19: 1024,
}
_CORE_CACHES = ((1, "Data", "64K"), (1, "Instruction", "64K"))

GRAVITON_2 = ArmMachine(
    f"{_N1} ssbs",
    "243.75",
    ("0xd0c",) * 16,
    variant="0x3",
    caches=(*_CORE_CACHES, (2, "Unified", "1024K"), (3, "Unified", "32768K")),
)
GRAVITON_3 = ArmMachine(
    _V1,
    "2100.00",
    ("0xd40",) * 8,
    variant="0x1",
    caches=(*_CORE_CACHES, (2, "Unified", "1024K"), (3, "Unified", "32768K")),
)
AMPERE_ALTRA = ArmMachine(_N1, "50.00", ("0xd0c",) * 64, variant="0x3")
# Five small and five big cores in each of two clusters. Some big cores reach a higher frequency than others.
DGX_SPARK = ArmMachine(
    _GB10,
    "2000.00",
    ("0xd87",) * 5 + ("0xd85",) * 5 + ("0xd87",) * 5 + ("0xd85",) * 5,
    capacities=_X925,
    caches=(*_CORE_CACHES, (2, "Unified", "512K"), (3, "Unified", "8192K")),
)
RASPBERRY_PI_5 = ArmMachine(
    _N1,
    "108.00",
    ("0xd0b",) * 4,
    variant="0x4",
    tail=(
        "Hardware\t: BCM2835\nRevision\t: d04170\nSerial\t\t: 0000000000000000\n"
        "Model\t\t: Raspberry Pi 5 Model B Rev 1.0\n"
    ),
    capacities=dict.fromkeys(range(4), 1024),
    caches=(*_CORE_CACHES, (2, "Unified", "512K"), (3, "Unified", "2048K")),
)
# The virtual machine of Docker hides the type of the cores and their caches.
DOCKER_ON_A_MAC = ArmMachine(_APPLE, "48.00", ("0x000",) * 4, implementer="0x61", revision="0")
# Cores of one type, which reach slightly different frequencies. The machine has 144; eight of them are here.
GRACE = ArmMachine(
    _GB10,
    "2000.00",
    ("0xd4f",) * 8,
    capacities={0: 996, 1: 999, 2: 1002, 3: 1005, 4: 1007, 5: 1010, 6: 1013, 7: 1024},
)
