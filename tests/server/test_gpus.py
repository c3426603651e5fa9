"""The memory and the use of GPUs, from a stand-in for NVML's binding: no machine of the tests has a GPU."""

import logging
import sys
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from support.fake_nvml import GIB, FakeNvml, NVMLError
from vecmill_server.telemetry.metrics.gpus import GpuCollector


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml.install(monkeypatch)


def series(collector: GpuCollector) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(collector)
    samples = (sample for family in registry.collect() for sample in family.samples)
    return {(sample.name, sample.labels["gpu"]): sample.value for sample in samples}


def on(*devices: str) -> GpuCollector:
    def found() -> Iterator[str]:
        yield from devices

    return GpuCollector(found)


def test_memory_and_use_of_all_gpus_are_read(nvml: FakeNvml) -> None:
    collector = on("cpu", "cuda:0")
    assert collector.is_needed
    collector.read()
    expected = {
        ("vecmill_gpu_memory_used_bytes", "0"): 3 * GIB,
        ("vecmill_gpu_memory_used_bytes", "1"): GIB,
        ("vecmill_gpu_memory_total_bytes", "0"): 80 * GIB,
        ("vecmill_gpu_memory_total_bytes", "1"): 80 * GIB,
        ("vecmill_gpu_busy_ratio", "0"): 0.37,
    }
    assert series(collector) == expected
    nvml.used[0] = 4 * GIB
    collector.read()
    assert series(collector)["vecmill_gpu_memory_used_bytes", "0"] == 4 * GIB
    assert nvml.inits == 1


@pytest.mark.parametrize("device", ["cpu", "rocm:0", "neuron", "none"])
def test_without_an_nvidia_gpu_nothing_is_imported(nvml: FakeNvml, device: str) -> None:
    collector = on(device)
    assert not collector.is_needed
    assert series(collector) == {}
    assert nvml.inits == 0


def test_a_driver_that_is_missing_is_logged_once(nvml: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    nvml.error = NVMLError("Driver Not Loaded")
    collector = on("cuda")
    collector.read()
    assert not collector.is_needed
    assert series(collector) == {}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Driver Not Loaded" in caplog.text


def test_a_binding_that_is_missing_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # what makes an import fail
    collector = on("tensorrt:0")
    collector.read()
    assert not collector.is_needed
    assert "NVML cannot be loaded" in caplog.text
