"""torch, step by step: fp32, bf16 and fp16 on processors and accelerators.

The graph of `graphs.build` becomes a torch module (`program`); linear layers run over tokens without padding.
On the processor one copy of the weights serves any number of callers, each on as many threads as its call is
wide (`threads`). Of accelerators each has a replica, which serves one call at a time: as many calls run at
once as there are devices.
"""

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch

from vecmill.engines.base import Survey, choose_precision
from vecmill.engines.calls import make_rows
from vecmill.engines.torch.devices import (
    DTYPES,
    choose_devices,
    find_devices,
    name_devices,
    precisions_of,
)
from vecmill.engines.torch.replica import Computer, IndexedProgram, Replica, Rounding, probe_device
from vecmill.engines.torch.threads import use_threads
from vecmill.engines.warming import warm_engine
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.models.library import LibraryConfig
from vecmill.plan import EnginePlan, Precision
from vecmill.types import Batch, CostModel, EngineInfo, Rows

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

# Accelerators read rows of 16 bytes at once; lengths that are no multiple of 8 cost them more than padding.
_ACCELERATOR_MULTIPLE = 8


class TorchEngine:
    """A model in torch. `replicas` are its devices; those of `shared` serve any number of callers at once."""

    name = "torch"

    def __init__(self, info: EngineInfo, replicas: Sequence[Replica], *, shared: bool) -> None:
        self._info = info
        self._shared = replicas[0] if shared else None
        self._free: queue.SimpleQueue[Replica] = queue.SimpleQueue()
        for replica in replicas:
            self._free.put(replica)
        self._left = len(replicas)
        self._closed = False

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Read the weights onto every device that is planned. Blocks; seconds.

        Raises `CorruptModel` if weights are missing or broken, `InvalidConfig` for a precision or a device
        that is not to be had, `UnsupportedModel` for a model that neither we nor transformers can build.
        """
        devices = choose_devices(plan.device)
        info = describe_engine(cls.name, description, plan, devices, cores=cores)
        dtype = DTYPES[Precision(info.precision)]
        replicas = [
            Replica(
                name_devices((device,)),
                load_computer(description, plan, dtype, device),
                lambda device=device: probe_device(device),  # type: ignore[misc]
            )
            for device in devices
        ]
        return cls(info, replicas, shared=devices[0].type == "cpu")

    @classmethod
    def survey(cls) -> Survey:
        """The devices that torch finds, and what they multiply."""
        return Survey({device: precisions_of(device) for device in find_devices()})

    @property
    def info(self) -> EngineInfo:
        """What this engine is and can do."""
        return self._info

    def warm_up(self) -> CostModel:
        """Run a few sizes in every width, and on every device."""
        costs = [warm_engine(self) for _ in range(self._info.parallel_calls or 1)]
        return costs[-1]

    def run(self, batch: Batch, *, width: int) -> Rows:
        """Compute rows in the form that `info` says.

        Raises `InferenceFailed` where torch raises, `DeviceLost` where the device is gone for good.
        """
        if width not in self._info.lane_widths:
            raise InferenceFailed(f"The engine computes on {self._info.lane_widths} cores, not on {width}.")
        with self._take_replica() as replica, torch.inference_mode(), use_threads(width):
            outputs = replica.run(batch)
        computed_tokens = len(batch) * int(batch.lengths.max())
        return make_rows(self._info.form, outputs, batch, computed_tokens=computed_tokens)

    def close(self) -> None:
        """Let go of the weights; calls that are running finish first."""
        self._closed = True
        self._shared = None
        while not self._free.empty():
            self._free.get()

    @contextmanager
    def _take_replica(self) -> Iterator[Replica]:
        """A replica that serves this call. One that is lost does not come back."""
        if self._closed:
            raise InferenceFailed("The engine is closed.")
        if self._shared is not None:
            yield self._shared
            return
        if not self._left:
            raise DeviceLost("Every device of this process is lost. It has to be restarted.")
        replica = self._free.get()
        try:
            yield replica
        except DeviceLost:
            self._left -= 1
            raise
        except BaseException:
            self._free.put(replica)
            raise
        self._free.put(replica)


def describe_engine(
    name: str,
    description: "ModelDescription",
    plan: EnginePlan,
    devices: tuple[torch.device, ...],
    *,
    cores: int,
) -> EngineInfo:
    """What an engine for `description` on `devices` says of itself. Raises `InvalidConfig`."""
    kind = name_devices(devices).partition(":")[0]
    is_processor = kind == "cpu"
    return EngineInfo(
        name=name,
        precision=choose_precision(plan, precisions_of(kind)),
        device=name_devices(devices),
        dim=description.dim,
        max_tokens=description.max_tokens,
        lane_widths=plan.widths_within(cores) if is_processor else (1,),
        form=description.row_form,
        parallel_calls=None if is_processor else len(devices),
        batch_tokens=plan.max_batch_tokens,
    )


def choose_rounding(plan: EnginePlan, device: torch.device, *, least: int = 1) -> Rounding:
    """How shapes are rounded for a device; `least` is the smallest size of each."""
    usual = 1 if device.type == "cpu" else _ACCELERATOR_MULTIPLE
    return Rounding(plan.length_multiple or usual, least)


def load_computer(
    description: "ModelDescription", plan: EnginePlan, dtype: torch.dtype, device: torch.device
) -> Computer:
    """The model on `device`. Raises as `TorchEngine.load` does."""
    # These bring onnx_ir, which nothing needs later.
    from vecmill.engines.torch.program import make_program
    from vecmill.graphs.build import build_graph
    from vecmill.graphs.layout import IndexedLayout
    from vecmill.graphs.steps import list_steps

    if isinstance(description.encoder, LibraryConfig):
        from vecmill.engines.torch.library import load_library_program

        return load_library_program(description, dtype, device)
    steps = list_steps(build_graph(description, IndexedLayout))
    program = make_program(steps, dtype=dtype, device=device)
    return IndexedProgram(
        lambda tensors: program(*tensors),
        steps.inputs,
        device,
        form=description.row_form,
        token_count=description.token_count,
        rounding=choose_rounding(plan, device),
    )
