"""The names of Arm cores by the numbers that /proc/cpuinfo has for them.

Processors of other families have their name in that file. The numbers are those of Linux
(`arch/arm64/include/asm/cputype.h`) and of lscpu.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Manufacturer:
    name: str
    parts: Mapping[int, str]


_MANUFACTURERS: Mapping[int, _Manufacturer] = {
    0x41: _Manufacturer(
        "ARM",
        {
            0xD03: "Cortex-A53",
            0xD04: "Cortex-A35",
            0xD05: "Cortex-A55",
            0xD07: "Cortex-A57",
            0xD08: "Cortex-A72",
            0xD09: "Cortex-A73",
            0xD0A: "Cortex-A75",
            0xD0B: "Cortex-A76",
            0xD0C: "Neoverse-N1",  # Graviton 2, Ampere Altra
            0xD0D: "Cortex-A77",
            0xD40: "Neoverse-V1",  # Graviton 3
            0xD41: "Cortex-A78",
            0xD42: "Cortex-A78AE",
            0xD44: "Cortex-X1",
            0xD46: "Cortex-A510",
            0xD47: "Cortex-A710",
            0xD48: "Cortex-X2",
            0xD49: "Neoverse-N2",
            0xD4B: "Cortex-A78C",
            0xD4D: "Cortex-A715",
            0xD4E: "Cortex-X3",
            0xD4F: "Neoverse-V2",  # Graviton 4, Grace, Axion
            0xD80: "Cortex-A520",
            0xD81: "Cortex-A720",
            0xD82: "Cortex-X4",
            0xD84: "Neoverse-V3",
            0xD85: "Cortex-X925",
            0xD87: "Cortex-A725",
            0xD8E: "Neoverse-N3",
        },
    ),
    0x43: _Manufacturer("Cavium", {0x0A1: "ThunderX-88XX", 0x0AF: "ThunderX2-99xx"}),
    0x46: _Manufacturer("Fujitsu", {0x001: "A64FX"}),
    0x48: _Manufacturer("HiSilicon", {0xD01: "Kunpeng-920"}),
    0x4E: _Manufacturer("NVIDIA", {0x003: "Denver 2", 0x004: "Carmel"}),
    0x51: _Manufacturer("Qualcomm", {0x001: "Oryon", 0xC00: "Falkor"}),
    # Under macOS and in its virtual machines the number is 0; Linux on the machine itself has the others.
    0x61: _Manufacturer(
        "Apple",
        {
            0x000: "core of a virtual machine",
            0x022: "Icestorm-M1",
            0x023: "Firestorm-M1",
            0x032: "Blizzard-M2",
            0x033: "Avalanche-M2",
        },
    ),
    0x6D: _Manufacturer("Microsoft", {0xD49: "Azure-Cobalt-100"}),
    0x70: _Manufacturer("Phytium", {0x662: "FTC662", 0x663: "FTC663"}),
    0xC0: _Manufacturer("Ampere", {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"}),
}


def name_core(implementer: str, part: str) -> str:
    """Return the name of a core, such as "ARM Neoverse-N1", by two hexadecimal numbers.

    A number without a name stands for itself.
    """
    try:
        manufacturer = _MANUFACTURERS.get(int(implementer, 16))
        name = None if manufacturer is None else manufacturer.parts.get(int(part, 16))
    except ValueError:
        manufacturer, name = None, None
    who = f"implementer {implementer}" if manufacturer is None else manufacturer.name
    return f"{who} {name or f'part {part}'}"
