"""Which execution provider is chosen, from invented lists of what a wheel of ONNX Runtime offers."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from vecmill.engines.providers import (
    check_started,
    choose_provider,
    installed_wheels,
    list_devices,
    refuse_mixed_wheels,
)
from vecmill.errors import InvalidConfig, MissingExtra

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
WHEELS = {
    "onnxruntime": [CPU],
    "onnxruntime on macOS": ["CoreMLExecutionProvider", CPU],
    "onnxruntime-gpu": [TENSORRT, CUDA, CPU],
    "onnxruntime-migraphx": ["MIGraphXExecutionProvider", CPU],
    "onnxruntime-rocm": ["ROCMExecutionProvider", CPU],
    "onnxruntime-openvino": ["OpenVINOExecutionProvider", CPU],
}
CACHE = Path("/cache")


@pytest.mark.parametrize(
    ("wheel", "device"),
    [
        ("onnxruntime", "cpu"),
        ("onnxruntime on macOS", "cpu"),
        ("onnxruntime-gpu", "cuda:0"),
        ("onnxruntime-migraphx", "migraphx:0"),
        ("onnxruntime-rocm", "rocm:0"),
        ("onnxruntime-openvino", "cpu"),
    ],
)
def test_unasked_the_wheel_decides(wheel: str, device: str) -> None:
    choice = choose_provider(None, WHEELS[wheel], cache_dir=CACHE)
    assert choice.device == device
    assert choice.is_cpu == (device == "cpu")


@pytest.mark.parametrize("wheel", WHEELS)
def test_every_wheel_can_be_told_to_use_the_processor(wheel: str) -> None:
    choice = choose_provider("cpu", WHEELS[wheel], cache_dir=CACHE)
    assert [(name, dict(options)) for name, options in choice.providers] == [(CPU, {})]


@pytest.mark.parametrize(
    ("device", "wheel", "full", "names", "compiles"),
    [
        ("cuda", "onnxruntime-gpu", "cuda:0", [CUDA, CPU], False),
        ("cuda:3", "onnxruntime-gpu", "cuda:3", [CUDA, CPU], False),
        ("tensorrt:1", "onnxruntime-gpu", "tensorrt:1", [TENSORRT, CUDA, CPU], True),
        ("migraphx", "onnxruntime-migraphx", "migraphx:0", ["MIGraphXExecutionProvider", CPU], True),
        ("rocm:2", "onnxruntime-rocm", "rocm:2", ["ROCMExecutionProvider", CPU], False),
        ("openvino", "onnxruntime-openvino", "openvino", ["OpenVINOExecutionProvider", CPU], True),
        ("coreml", "onnxruntime on macOS", "coreml", ["CoreMLExecutionProvider", CPU], True),
    ],
)
def test_a_device_by_name(device: str, wheel: str, full: str, names: list[str], compiles: bool) -> None:
    choice = choose_provider(device, WHEELS[wheel], cache_dir=CACHE)
    assert choice.device == full
    assert [name for name, _ in choice.providers] == names
    assert choice.compiles == compiles
    assert not choice.is_cpu


def test_the_number_reaches_the_provider_and_what_it_falls_back_on() -> None:
    choice = choose_provider("tensorrt:1", WHEELS["onnxruntime-gpu"], cache_dir=CACHE)
    options = {name: dict(found) for name, found in choice.providers}
    assert options[TENSORRT]["device_id"] == options[CUDA]["device_id"] == "1"
    assert options[TENSORRT]["trt_engine_cache_path"] == str(CACHE / "tensorrt")


def test_fp32_on_a_gpu_is_no_tf32() -> None:
    for device in ("cuda", "tensorrt"):
        choice = choose_provider(device, WHEELS["onnxruntime-gpu"], cache_dir=CACHE)
        assert dict(choice.providers)[CUDA]["use_tf32"] == "0"


@pytest.mark.parametrize(
    ("device", "wheel"),
    [
        ("cuda", r"pip install 'vecmill\[gpu\]'"),
        ("tensorrt", r"pip install 'vecmill\[gpu\]'"),
        ("migraphx", r"pip install 'vecmill\[migraphx\]'"),
        ("rocm", "pip install onnxruntime-rocm"),
        ("openvino", "pip install onnxruntime-openvino"),
    ],
)
def test_a_provider_that_is_not_offered_names_the_wheel_that_has_it(device: str, wheel: str) -> None:
    with pytest.raises(MissingExtra, match=f"pip uninstall onnxruntime, then .*{wheel}"):
        choose_provider(device, WHEELS["onnxruntime"], cache_dir=CACHE)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:one", "cuda:-1", "cuda:²", "openvino:1", "", "CPU"])
def test_what_is_no_device_is_refused(device: str) -> None:
    with pytest.raises(InvalidConfig, match="device"):
        choose_provider(device, [name for names in WHEELS.values() for name in names], cache_dir=CACHE)


def test_the_devices_that_are_seen_begin_with_the_one_that_is_chosen() -> None:
    for offered in WHEELS.values():
        seen = list_devices(offered)
        assert len(seen) == len(offered)
        assert choose_provider(None, offered, cache_dir=CACHE).device.startswith(seen[0])


def test_a_provider_that_did_not_come_up_is_an_error() -> None:
    choice = choose_provider("cuda:1", WHEELS["onnxruntime-gpu"], cache_dir=CACHE)
    check_started(choice, [CUDA, CPU])
    with pytest.raises(InvalidConfig, match="could not start CUDAExecutionProvider for the device cuda:1"):
        check_started(choice, [CPU])


def test_two_wheels_at_once_are_noticed_and_refused() -> None:
    def find_version(name: str) -> str:
        if name not in ("onnxruntime", "onnxruntime-gpu"):
            raise PackageNotFoundError(name)
        return "1.31.1"

    installed = installed_wheels(find_version)
    assert installed == ("onnxruntime", "onnxruntime-gpu")
    with pytest.raises(MissingExtra, match="pip uninstall onnxruntime onnxruntime-gpu"):
        refuse_mixed_wheels(installed)
    refuse_mixed_wheels(installed[:1])
    refuse_mixed_wheels(())


def test_here_one_wheel_is_installed() -> None:
    assert installed_wheels() == ("onnxruntime",)
