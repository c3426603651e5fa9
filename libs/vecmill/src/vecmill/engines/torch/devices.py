"""The devices that torch finds on this machine, and the precisions in which they compute.

torch uses the name `cuda` for NVIDIA devices and, in its ROCm wheel, for AMD devices. vecmill uses the name
`rocm` for AMD devices. A name without a number means all devices of that kind.
"""

from collections.abc import Mapping

import torch

from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import Precision

DTYPES: Mapping[Precision, torch.dtype] = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
"""The torch dtype of each precision."""


def find_devices() -> tuple[str, ...]:
    """Return the kinds of devices on this machine, the best first; `cpu` is always the last."""
    return (
        *((_accelerator(),) if torch.cuda.is_available() else ()),
        *(("mps",) if torch.backends.mps.is_available() else ()),
        "cpu",
    )


def choose_devices(name: str | None) -> tuple[torch.device, ...]:
    """Return the devices with this `name`: `cpu`, `cuda` (all) or `cuda:1`; without a name, the best devices.

    Raises `InvalidConfig` for a device that is not available.
    """
    found = find_devices()
    kind, _, number = (name or found[0]).partition(":")
    if kind == "cuda" and "rocm" in found:
        kind = "rocm"
    if kind not in found:
        raise InvalidConfig(
            f"The device {name} is not available: torch {torch.__version__} finds {', '.join(found)} on this "
            "machine. Install torch's wheel for that device, or choose another device."
        )
    if kind in ("cpu", "mps"):
        if number not in ("", "0"):
            raise InvalidConfig(
                f"The device {name} is not available: there is only one {kind} device, {kind}."
            )
        return (torch.device(kind),)
    return _choose_numbered(kind, number)


def name_devices(devices: tuple[torch.device, ...]) -> str:
    """Return the name, in the form that a plan uses, of the devices from `choose_devices`."""
    kind = _accelerator() if devices[0].type == "cuda" else devices[0].type
    numbers = [device.index for device in devices]
    if len(numbers) > 1 or numbers[0] is None:
        return kind
    return f"{kind}:{numbers[0]}"


def precisions_of(device: str) -> tuple[Precision, ...]:
    """Return the precisions that a kind of device multiplies natively."""
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
            f"The device {kind}:{number} is not available: there are {count} {kind} devices, numbered from 0."
        )
    return (torch.device("cuda", int(number)),)
