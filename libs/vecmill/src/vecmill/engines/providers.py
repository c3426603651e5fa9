"""Which of ONNX Runtime's execution providers computes, and which wheel brings it.

Nothing here imports ONNX Runtime: what it offers, and what is installed, is passed in. Its wheels all put
their files into one package, `onnxruntime`, so two of them overwrite each other and leave a mixture of both.

Providers but the CPU's are unverified: no machine with their hardware was at hand.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

from vecmill.errors import InvalidConfig, MissingExtra

CPU = "cpu"
_CPU_PROVIDER = "CPUExecutionProvider"

# Every distribution that brings the package `onnxruntime`.
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
    """How ONNX Runtime calls the provider of a device, and where it comes from.

    `is_numbered` is whether a machine may have several. `compiles` is whether it compiles for each shape that
    it sees, so that it should see few. `fallbacks` take what the provider leaves, before the CPU does.
    `options` keep it from multiplying less precisely than it is asked to.
    """

    provider: str
    wheel: str
    extra: str | None = None
    is_numbered: bool = True
    compiles: bool = True
    fallbacks: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


_FULL_FP32 = MappingProxyType({"use_tf32": "0"})

_DEVICES: Mapping[str, _Device] = MappingProxyType(
    {
        "cuda": _Device(
            "CUDAExecutionProvider", "onnxruntime-gpu", "gpu", compiles=False, options=_FULL_FP32
        ),
        "tensorrt": _Device(
            "TensorrtExecutionProvider", "onnxruntime-gpu", "gpu", fallbacks=("CUDAExecutionProvider",)
        ),
        "migraphx": _Device("MIGraphXExecutionProvider", "onnxruntime-migraphx", "migraphx"),
        "rocm": _Device("ROCMExecutionProvider", "onnxruntime-rocm", compiles=False),
        "openvino": _Device("OpenVINOExecutionProvider", "onnxruntime-openvino", is_numbered=False),
        "coreml": _Device("CoreMLExecutionProvider", "onnxruntime (on macOS)", "cpu", is_numbered=False),
    }
)

# Those that are preferred to the processor unasked. The others compile for minutes or in silence compute less
# precisely, or are in a wheel that most people installed for its CPU provider.
_PREFERRED = ("cuda", "migraphx", "rocm")


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """What sessions are made with.

    `device` is its name in full, such as "cuda:1". `providers` are in the form that
    `onnxruntime.InferenceSession` takes; the first is the one that must have come up. `compiles` is whether
    shapes should be few.
    """

    device: str
    providers: tuple[tuple[str, Mapping[str, str]], ...]
    compiles: bool = False

    @property
    def name(self) -> str:
        """ONNX Runtime's name of the provider that was chosen."""
        return self.providers[0][0]

    @property
    def is_cpu(self) -> bool:
        """Whether ONNX Runtime's own kernels compute, on the processor."""
        return self.name == _CPU_PROVIDER


ON_CPU = ProviderChoice(CPU, ((_CPU_PROVIDER, MappingProxyType({})),))


def choose_provider(device: str | None, offered: Sequence[str], *, cache_dir: Path) -> ProviderChoice:
    """The provider of `device`, or the best of those `offered` by `onnxruntime.get_available_providers()`.

    `cache_dir` is where a provider may keep what it compiles. Raises `InvalidConfig` for a device that there
    is not, `MissingExtra` for one whose provider the installed wheel lacks.
    """
    if device is None:
        device = seen_devices(offered)[0]
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


def seen_devices(offered: Iterable[str]) -> tuple[str, ...]:
    """The devices whose providers are offered, the one that is chosen unasked first.

    A provider is offered if it is in the wheel: whether the hardware is there shows when it is used.
    """
    offered = frozenset(offered)
    present = [name for name, device in _DEVICES.items() if device.provider in offered]
    first = [name for name in _PREFERRED if name in present]
    return (*first, CPU, *(name for name in present if name not in first))


def check_started(choice: ProviderChoice, running: Sequence[str]) -> None:
    """Raise `InvalidConfig` unless the chosen provider is among those that a session really has.

    ONNX Runtime goes on without a provider whose libraries or hardware are missing, with a line in its log.
    """
    if choice.name not in running:
        raise InvalidConfig(
            f"ONNX Runtime could not start {choice.name} for the device {choice.device}: its driver, its "
            "libraries or the hardware are missing here, or are of another release. Install them, or choose "
            "the device cpu."
        )


def installed_wheels(find_version: Callable[[str], str] = version) -> tuple[str, ...]:
    """Which of `RUNTIME_WHEELS` are installed."""
    return tuple(name for name in RUNTIME_WHEELS if _is_installed(name, find_version))


def refuse_mixed_wheels(installed: Sequence[str]) -> None:
    """Raise `MissingExtra` where more than one wheel of ONNX Runtime is installed, so that none is whole."""
    if len(installed) < 2:
        return
    # Removing one of them takes files of the other with it, so both go.
    raise MissingExtra(
        f"{' and '.join(installed)} are installed at once, and overwrite each other's files. Remove all of "
        f"them (pip uninstall {' '.join(installed)}), then install the one that you want, such as "
        f"pip install {installed[-1]}."
    )


def _is_installed(name: str, find_version: Callable[[str], str]) -> bool:
    try:
        find_version(name)
    except PackageNotFoundError:
        return False
    return True


def _split(device: str) -> tuple[str, int]:
    """The name of a device and its number, 0 if there is none. Raises `InvalidConfig`."""
    name, colon, number = device.partition(":")
    found = _DEVICES.get(name)
    if found is None:
        raise InvalidConfig(
            f"The onnx engine knows no device {device!r}. Choose one of: {', '.join((CPU, *_DEVICES))}; "
            "where a machine has several, with a number, such as cuda:1."
        )
    if not colon:
        return name, 0
    if not found.is_numbered or not (number.isascii() and number.isdecimal()):
        example = f"{name}:0" if found.is_numbered else name
        raise InvalidConfig(f"{device!r} is no device of the onnx engine; {example} would be one.")
    return name, int(number)


def _missing(name: str, device: _Device) -> str:
    wanted = f"'vecmill[{device.extra}]'" if device.extra else device.wheel
    return (
        f"The device {name} needs ONNX Runtime's {device.provider}, which the installed wheel does not have. "
        f"Install the wheel that has it, {device.wheel}, in place of the present one: pip uninstall "
        f"onnxruntime, then pip install {wanted}."
    )
