"""Which devices torch finds, and in what precision they compute.

`cuda` stands for NVIDIA's and, with torch's wheel for ROCm, AMD's: torch has one module for both, and we call
the second `rocm`. Without a number it means all of them.
"""

from collections.abc import Mapping
from types import MappingProxyType

import torch

from vecmill.errors import InvalidConfig
from vecmill.plan import Precision

DTYPES: Mapping[Precision, torch.dtype] = MappingProxyType(
    {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
)
"""How each precision is stored."""


def find_devices() -> tuple[str, ...]:
    """The kinds of devices here, the best first; the processor is always among them."""
    return (
        *((_accelerator(),) if torch.cuda.is_available() else ()),
        *(("mps",) if torch.backends.mps.is_available() else ()),
        "cpu",
    )


def choose_devices(asked: str | None) -> tuple[torch.device, ...]:
    """The devices that `asked` names, such as `cpu`, `cuda` (all of them) or `cuda:1`; by default the best.

    Raises `InvalidConfig` for one that is not there.
    """
    found = find_devices()
    kind, _, number = (asked or found[0]).partition(":")
    if kind == "cuda" and "rocm" in found:
        kind = "rocm"
    if kind not in found:
        raise InvalidConfig(
            f"The device {asked} is not to be had: torch {torch.__version__} finds {', '.join(found)} here. "
            "Install torch's wheel for that device, or choose another."
        )
    if kind in ("cpu", "mps"):
        if number not in ("", "0"):
            raise InvalidConfig(
                f"The device {asked} is not to be had: there is one {kind}, without a number."
            )
        return (torch.device(kind),)
    return _choose_numbered(kind, number)


def name_devices(devices: tuple[torch.device, ...]) -> str:
    """What `choose_devices` has chosen, in the words of a plan."""
    kind = _accelerator() if devices[0].type == "cuda" else devices[0].type
    numbers = [device.index for device in devices]
    if len(numbers) > 1 or numbers[0] is None:
        return kind
    return f"{kind}:{numbers[0]}"


def precisions_of(device: str) -> tuple[Precision, ...]:
    """What a kind of device multiplies itself, rather than by turning it into something else."""
    match device:
        case "cpu":
            capabilities = torch.cpu.get_capabilities()
            bf16 = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
            fp16 = any(capabilities.get(name) for name in ("avx512_fp16", "amx_fp16"))
        case "mps":
            bf16, fp16 = False, True
        case _:
            bf16, fp16 = torch.cuda.is_bf16_supported(including_emulation=False), True
    return (
        Precision.FP32,
        *((Precision.BF16,) if bf16 else ()),
        *((Precision.FP16,) if fp16 else ()),
    )


def _accelerator() -> str:
    return "rocm" if torch.version.hip else "cuda"


def _choose_numbered(kind: str, number: str) -> tuple[torch.device, ...]:
    count = torch.cuda.device_count()
    if not number:
        return tuple(torch.device("cuda", index) for index in range(count))
    if not number.isdecimal() or int(number) >= count:
        raise InvalidConfig(
            f"The device {kind}:{number} is not to be had: there are {count}, numbered from 0."
        )
    return (torch.device("cuda", int(number)),)
