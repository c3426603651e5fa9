"""The choice of an ONNX Runtime execution provider for a device, and checks of the installed wheels.

This module does not import ONNX Runtime: callers pass the offered providers and the installed wheels. All
wheels of ONNX Runtime install the same package, `onnxruntime`, so two wheels overwrite each other's files.

All providers except the CPU provider are unverified: no machine with their hardware was available.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vecmill.errors import InvalidConfig, MissingExtra
from vecmill.values.messages import pip_command

CPU = "cpu"
_CPU_PROVIDER = "CPUExecutionProvider"

# Every distribution that installs the package `onnxruntime`.
RUNTIME_WHEELS = (
    "onnxruntime",
    "onnxruntime-directml",
    "onnxruntime-gpu",
    "onnxruntime-migraphx",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-rocm",
    "onnxruntime-training",
    "ort-nightly",
    "ort-nightly-gpu",
)


@dataclass(frozen=True, slots=True)
class _Device:
    """The execution provider of a kind of device, and the wheel and extra that install the provider.

    `is_numbered`: whether a machine may have several such devices. `compiles`: whether the provider compiles
    for each new shape, so that shapes should be few. `fallbacks`: providers for operators that this provider
    does not support, tried before the CPU provider. `options`: session options that prevent lower precision.
    """

    provider: str
    wheel: str
    extra: str | None = None
    is_numbered: bool = True
    compiles: bool = True
    fallbacks: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


_FULL_FP32: Mapping[str, str] = {"use_tf32": "0"}

_DEVICES: Mapping[str, _Device] = {
    "cuda": _Device("CUDAExecutionProvider", "onnxruntime-gpu", "gpu", compiles=False, options=_FULL_FP32),
    "tensorrt": _Device(
        "TensorrtExecutionProvider", "onnxruntime-gpu", "gpu", fallbacks=("CUDAExecutionProvider",)
    ),
    "migraphx": _Device("MIGraphXExecutionProvider", "onnxruntime-migraphx", "migraphx"),
    "rocm": _Device("ROCMExecutionProvider", "onnxruntime-rocm", compiles=False),
    "openvino": _Device("OpenVINOExecutionProvider", "onnxruntime-openvino", is_numbered=False),
    "coreml": _Device("CoreMLExecutionProvider", "onnxruntime (on macOS)", "cpu", is_numbered=False),
}

# Devices that are preferred to the CPU by default. The others compile for minutes, silently compute with less
# precision, or are in a wheel that most users installed for its CPU provider.
_PREFERRED = ("cuda", "migraphx", "rocm")


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """The providers for sessions on a device.

    `device` is the full name, such as "cuda:1". `providers` is the argument of
    `onnxruntime.InferenceSession`. The session must have started the first of these providers. `compiles` is
    whether the provider compiles for each new shape, so that shapes should be few.
    """

    device: str
    providers: tuple[tuple[str, Mapping[str, str]], ...]
    compiles: bool = False

    @property
    def name(self) -> str:
        """The name that ONNX Runtime gives the chosen provider."""
        return self.providers[0][0]

    @property
    def is_cpu(self) -> bool:
        """Whether the chosen provider is the CPU provider."""
        return self.name == _CPU_PROVIDER


ON_CPU = ProviderChoice(CPU, ((_CPU_PROVIDER, {}),))


def choose_provider(device: str | None, offered: Sequence[str], *, cache_dir: Path) -> ProviderChoice:
    """Return the provider of `device`, or the best provider of `offered` if `device` is not given.

    `offered` comes from `onnxruntime.get_available_providers()`. `cache_dir` may store compiled engines.
    Raises `InvalidConfig` for an unknown device, `MissingExtra` if the installed wheel lacks the provider.
    """
    if device is None:
        device = list_devices(offered)[0]
    if device == CPU:
        return ON_CPU
    name, number = _split(device)
    found = _DEVICES[name]
    if found.provider not in offered:
        raise MissingExtra(_missing(name, found))
    options = dict(found.options)
    if found.is_numbered:
        options["device_id"] = str(number)
    if name == "tensorrt":
        options |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(cache_dir / "tensorrt")}
    others = [
        (other, {"device_id": str(number), **_FULL_FP32}) for other in found.fallbacks if other in offered
    ]
    return ProviderChoice(
        f"{name}:{number}" if found.is_numbered else name,
        ((found.provider, options), *others, (_CPU_PROVIDER, {})),
        found.compiles,
    )


def list_devices(offered: Iterable[str]) -> tuple[str, ...]:
    """Return the devices whose providers are offered, the default device first.

    A provider is offered if the wheel contains it. Missing hardware is found only when a session starts.
    """
    offered = frozenset(offered)
    present = [name for name, device in _DEVICES.items() if device.provider in offered]
    first = [name for name in _PREFERRED if name in present]
    return (*first, CPU, *(name for name in present if name not in first))


def check_started(choice: ProviderChoice, running: Sequence[str]) -> None:
    """Raise `InvalidConfig` unless the chosen provider is among the session's `running` providers.

    ONNX Runtime only logs a line if the libraries or the hardware of a provider are missing.
    """
    if choice.name not in running:
        raise InvalidConfig(
            f"ONNX Runtime could not start {choice.name} for the device {choice.device}: the driver, the "
            "libraries or the hardware are missing or of another release. Install them, or choose the device "
            "cpu."
        )


def installed_wheels(find_version: Callable[[str], str] = version) -> tuple[str, ...]:
    """Return the wheels of `RUNTIME_WHEELS` that are installed."""
    return tuple(name for name in RUNTIME_WHEELS if _is_installed(name, find_version))


def refuse_mixed_wheels(installed: Sequence[str]) -> None:
    """Raise `MissingExtra` if two or more wheels of ONNX Runtime, which damage each other, are installed."""
    if len(installed) < 2:
        return
    # Uninstalling one wheel removes files of the other, so all have to be uninstalled.
    raise MissingExtra(
        f"{' and '.join(installed)} are both installed and overwrite each other's files. Uninstall all of "
        f"them ({pip_command('uninstall', *installed)}), then install the wheel that you want, such as with "
        f"{pip_command('install', installed[-1])}."
    )


def _is_installed(name: str, find_version: Callable[[str], str]) -> bool:
    try:
        find_version(name)
    except PackageNotFoundError:
        return False
    return True


def _split(device: str) -> tuple[str, int]:
    """Split a device into its name and number, 0 if it has no number. Raises `InvalidConfig`."""
    name, colon, number = device.partition(":")
    found = _DEVICES.get(name)
    if found is None:
        raise InvalidConfig(
            f"The onnx engine has no device {device!r}. Choose one of: {', '.join((CPU, *_DEVICES))}. On a "
            "machine with several such devices, add a number, as in cuda:1."
        )
    if not colon:
        return name, 0
    if not found.is_numbered or not (number.isascii() and number.isdecimal()):
        example = f"{name}:0" if found.is_numbered else name
        raise InvalidConfig(f"{device!r} is not a device of the onnx engine; {example!r} is a valid name.")
    return name, int(number)


def _missing(name: str, device: _Device) -> str:
    wanted = f"vecmill[{device.extra}]" if device.extra else device.wheel
    return (
        f"The device {name} needs ONNX Runtime's {device.provider}, which the installed wheel does not have. "
        f"Replace that wheel by {device.wheel}: {pip_command('uninstall', 'onnxruntime')}, then "
        f"{pip_command('install', wanted)}."
    )
