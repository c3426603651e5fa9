"""Arm processors are named by their cores, and cores of two speeds do not share a call."""

from pathlib import Path

import pytest

from hardware.arm_machines import (
    AMPERE_ALTRA,
    DGX_SPARK,
    DOCKER_ON_A_MAC,
    GRACE,
    GRAVITON_2,
    GRAVITON_3,
    RASPBERRY_PI_5,
    ArmMachine,
)
from vecmill.hardware.arm_cores import name_core
from vecmill.hardware.cores import Topology
from vecmill.hardware.processor import (
    Cache,
    instruction_sets,
    multiplies_bf16,
    multiplies_bytes,
    processor_model,
    processor_name,
    read_caches,
)

MODELS = {
    "ARM Neoverse-N1": (GRAVITON_2, AMPERE_ALTRA),
    "ARM Neoverse-V1": (GRAVITON_3,),
    "10 ARM Cortex-A725, 10 ARM Cortex-X925": (DGX_SPARK,),
    "ARM Cortex-A76 (Raspberry Pi 5 Model B Rev 1.0)": (RASPBERRY_PI_5,),
    "Apple core of a virtual machine": (DOCKER_ON_A_MAC,),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_processor_is_named_by_its_cores(model: str, tmp_path: Path) -> None:
    for index, machine in enumerate(MODELS[model]):
        assert processor_model(machine.write(tmp_path / str(index))) == model


def test_a_core_without_a_known_number_is_named_by_the_number() -> None:
    assert name_core("0x41", "0xd0c") == "ARM Neoverse-N1"
    assert name_core("0x41", "0xfff") == "ARM part 0xfff"
    assert name_core("0x99", "0xd0c") == "implementer 0x99 part 0xd0c"
    assert name_core("ARM", "N1") == "implementer ARM part N1"


def test_processors_of_other_families_keep_their_name(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("model name\t: AMD EPYC\nflags\t\t: fma avx512_bf16 bf16\n")
    assert processor_model(tmp_path) == "AMD EPYC"
    assert not multiplies_bf16(tmp_path)


def test_the_name_that_an_old_kernel_gives_every_core_is_not_used(tmp_path: Path) -> None:
    root = RASPBERRY_PI_5.write(tmp_path)
    text = (root / "proc/cpuinfo").read_text()
    named = text.replace("BogoMIPS", "model name\t: ARMv8 Processor rev 1 (v8l)\nBogoMIPS")
    (root / "proc/cpuinfo").write_text(named)
    assert processor_model(root).startswith("ARM Cortex-A76")


@pytest.mark.linux
@pytest.mark.parametrize(
    ("machine", "expected", "bf16"),
    [
        (GRAVITON_2, ("asimd", "asimddp"), False),
        (GRAVITON_3, ("asimd", "asimddp", "i8mm", "bf16", "sve"), True),
        (DGX_SPARK, ("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"), True),
        (DOCKER_ON_A_MAC, ("asimd", "asimddp"), False),
    ],
    ids=["Graviton 2", "Graviton 3", "DGX Spark", "Docker on a Mac"],
)
def test_the_instructions_that_matter_are_read(
    machine: ArmMachine, expected: tuple[str, ...], bf16: bool, tmp_path: Path
) -> None:
    root = machine.write(tmp_path)
    assert instruction_sets(root) == expected
    assert multiplies_bytes(root)
    assert multiplies_bf16(root) is bf16


def test_packed_weights_of_different_processors_have_different_names(tmp_path: Path) -> None:
    machines = (GRAVITON_2, GRAVITON_3, DGX_SPARK, RASPBERRY_PI_5, DOCKER_ON_A_MAC, GRACE)
    names = {processor_name(one.write(tmp_path / str(index))) for index, one in enumerate(machines)}
    assert len(names) == len(machines)


def test_cores_of_two_types_are_another_processor_than_the_first_type_alone(tmp_path: Path) -> None:
    small = ArmMachine(DGX_SPARK.features, DGX_SPARK.bogomips, ("0xd87",) * 10)
    names = [processor_name(one.write(tmp_path / one.parts[-1])) for one in (small, DGX_SPARK)]
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("machine", "groups", "widest"),
    [
        (GRAVITON_2, [16], 16),
        (AMPERE_ALTRA, [64], 16),
        (DGX_SPARK, [10, 10], 10),
        (RASPBERRY_PI_5, [4], 4),
        (DOCKER_ON_A_MAC, [4], 4),
        (GRACE, [8], 8),
    ],
    ids=["Graviton 2", "Altra", "DGX Spark", "Raspberry Pi 5", "Docker on a Mac", "Grace"],
)
def test_a_wide_call_gets_cores_of_one_speed(
    machine: ArmMachine, groups: list[int], widest: int, tmp_path: Path
) -> None:
    found = Topology.read(machine.write(tmp_path), machine.processors)
    assert [len(group) for group in found.groups] == groups
    assert found.numa_nodes == 1
    assert found.widest_call(len(machine.processors)) == widest


def test_the_big_cores_of_a_machine_are_one_group(tmp_path: Path) -> None:
    fastest = Topology.read(DGX_SPARK.write(tmp_path), DGX_SPARK.processors).groups[0]
    assert frozenset().union(*fastest) == frozenset({*range(5, 10), *range(15, 20)})


@pytest.mark.parametrize("nonsense", ["", "fast", "-1"])
def test_speeds_of_another_kind_are_as_if_they_were_not_there(tmp_path: Path, nonsense: str) -> None:
    root = RASPBERRY_PI_5.write(tmp_path)
    for number in range(4):
        (root / f"sys/devices/system/cpu/cpu{number}/cpu_capacity").write_text(nonsense)
    assert [len(group) for group in Topology.read(root, frozenset(range(4))).groups] == [4]


def test_caches_are_read_where_the_system_tells_them(tmp_path: Path) -> None:
    assert read_caches(GRAVITON_2.write(tmp_path / "graviton")) == (
        Cache("L1d", 64),
        Cache("L1i", 64),
        Cache("L2", 1_024),
        Cache("L3", 32_768),
    )
    assert read_caches(DOCKER_ON_A_MAC.write(tmp_path / "mac")) == ()


def test_a_cache_with_a_file_of_another_kind_is_left_out(tmp_path: Path) -> None:
    root = RASPBERRY_PI_5.write(tmp_path)
    folder = root / "sys/devices/system/cpu/cpu0/cache"
    (folder / "index0/size").write_text("large")
    (folder / "index1/type").write_text("Magic")
    (folder / "index2/level").unlink()
    assert read_caches(root) == (Cache("L3", 2_048),)
