"""The torch engine, eager, in fp32, bf16 and fp16, on the CPU and on accelerators.

The graph of `architectures.build` becomes a torch module (`program`); linear layers run over tokens without
padding. On the CPU one copy of the weights serves any number of callers. Each call uses as many threads as
its lane has cores. Each accelerator has a replica. A GPU of NVIDIA or AMD has two calls at once, of which one
computes (`overlapped_program`); other accelerators have one. Shapes of small calls are captured in the
background after the warm-up.
"""

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Self

import torch

from vecmill.engines.base import EngineCapabilities, choose_precision, warm_engine
from vecmill.engines.session_calls import ModelCall, make_embeddings
from vecmill.engines.torch.captured_shapes import LENGTH_MULTIPLE, list_shapes
from vecmill.engines.torch.device_calls import CudaCalls
from vecmill.engines.torch.devices import DTYPES, choose_devices, find_devices, name_devices, precisions_of
from vecmill.engines.torch.overlapped_program import CALLS, OverlappedProgram, ProgramInputs
from vecmill.engines.torch.replica import IndexedProgram, Outputs, Replica, ShapeRounding, probe_device
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.hardware.cores import lane_widths
from vecmill.models.encoder_config import TransformersConfig
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel, EngineInfo, EnginePlan, Precision

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

# Small calls take as long as their kernels take to start: on an H100 in fp16 16 tokens take as long as 128.
_ACCELERATOR_BATCH_TOKENS = 16_384
# A call that hangs may keep the thread that captures for ever.
_JOIN_S = 5.0
# The first GPUs of NVIDIA that have the kernel for packed texts: Ampere.
_PACKED_CAPABILITY = (8, 0)


class TorchEngine:
    """A model in torch, with one replica for each device.

    If `shared` is true, there is one replica, which serves any number of callers at once. Otherwise
    `replicas` has each as often as it serves calls at once. `captures` are called in the background after the
    warm-up, each until it returns false.
    """

    name = "torch"

    def __init__(
        self,
        info: EngineInfo,
        replicas: Sequence[Replica],
        *,
        shared: bool,
        captures: Sequence[Callable[[], bool]] = (),
    ) -> None:
        self.info = info
        self._captures = captures
        self._capturing: Thread | None = None
        self._shared = replicas[0] if shared else None
        self._free: queue.SimpleQueue[Replica] = queue.SimpleQueue()
        for replica in replicas:
            self._free.put(replica)
        self._left = len(replicas)
        self._closed = False

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Read the weights onto every planned device. Blocks for seconds.

        Raises `CorruptModel` if weights are missing or broken, `InvalidConfig` for a precision or device that
        is not available, `UnsupportedModel` for a model that neither vecmill nor transformers can build.
        """
        devices = choose_devices(plan.device)
        info = describe_engine(cls.name, description, plan, devices, cores=cores)
        dtype = DTYPES[Precision(info.precision)]
        calls = [load_model_call(description, plan, dtype, device) for device in devices]
        replicas = [
            Replica(
                name_devices((device,)),
                call,
                lambda device=device: probe_device(device),  # type: ignore[misc]
            )
            for device, call in zip(devices, calls, strict=True)
        ]
        overlapped = [call for call in calls if isinstance(call, OverlappedProgram)]
        if overlapped:
            replicas *= CALLS
            shares_prefixes = all(call.shares_prefixes for call in overlapped)
            info = replace(info, parallel_calls=len(replicas), shares_prefixes=shares_prefixes)
        captures = [call.capture_next for call in overlapped]
        return cls(info, replicas, shared=devices[0].type == "cpu", captures=captures)

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        """Return the devices that torch finds, and their precisions."""
        return EngineCapabilities({device: precisions_of(device) for device in find_devices()})

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Run batches of a few sizes in every width and on every device, and return the fitted cost."""
        costs = [warm_engine(self, texts) for _ in range(self.info.parallel_calls or 1)]
        if self._captures and self._capturing is None:
            self._capturing = Thread(target=self._capture_all, name="vecmill-capture", daemon=True)
            self._capturing.start()
        return costs[-1]

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute embeddings of the shape `info.output_shape`.

        Raises `InferenceFailed` if torch raises, `DeviceLost` if the device no longer responds.
        """
        if width not in self.info.lane_widths:
            raise InferenceFailed(f"The engine computes on {self.info.lane_widths} cores, not on {width}.")
        with torch.inference_mode(), use_threads(width):
            outputs = self._compute(batch)
        computed_tokens = len(batch) * int(batch.lengths.max())
        return make_embeddings(self.info, outputs, batch, computed_tokens=computed_tokens)

    def renew(self) -> None:
        """Do nothing: calls on the CPU do not block each other, and a hung call keeps its device."""

    def close(self) -> None:
        """Release the weights after the running calls."""
        self._closed = True
        if self._capturing is not None:
            self._capturing.join(_JOIN_S)
        self._captures = ()
        self._shared = None
        while not self._free.empty():
            self._free.get()

    def _capture_all(self) -> None:
        with torch.inference_mode():
            for capture_next in self._captures:
                while not self._closed and capture_next():
                    pass

    def _compute(self, batch: Batch) -> Outputs:
        with self._take_replica() as replica:
            return replica.run(batch)

    @contextmanager
    def _take_replica(self) -> Iterator[Replica]:
        """Take a replica for one call, and return it afterwards unless its device is lost."""
        if self._closed:
            raise InferenceFailed("The engine is closed.")
        if self._shared is not None:
            yield self._shared
            return
        if not self._left:
            raise DeviceLost("No device of this process responds any more. Restart the process.")
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
    """Return the info of an engine for `description` on `devices`. Raises `InvalidConfig`."""
    kind = name_devices(devices).partition(":")[0]
    is_processor = kind == "cpu"
    return EngineInfo(
        name=name,
        precision=choose_precision(plan, precisions_of(kind)),
        device=name_devices(devices),
        dim=description.dim,
        max_tokens=description.max_tokens,
        lane_widths=lane_widths(plan.lane_widths, cores) if is_processor else (1,),
        output_shape=description.output_shape,
        normalizes=description.normalizes_output,
        parallel_calls=None if is_processor else len(devices),
        batch_tokens=plan.max_batch_tokens or (None if is_processor else _ACCELERATOR_BATCH_TOKENS),
        shares_prefixes=description.shares_prefixes,
    )


def choose_rounding(plan: EnginePlan, device: torch.device, *, min_size: int = 1) -> ShapeRounding:
    """Return the rounding of shapes for a device, with `min_size` as the minimum of all sizes."""
    usual = 1 if device.type == "cpu" else LENGTH_MULTIPLE
    return ShapeRounding(plan.length_multiple or usual, min_size)


def load_model_call(
    description: "ModelDescription", plan: EnginePlan, dtype: torch.dtype, device: torch.device
) -> ModelCall:
    """Load the model onto `device`. Raises the same errors as `TorchEngine.load`."""
    # These modules import onnx_ir, which is not needed after the load.
    from vecmill.architectures.build import build_graph
    from vecmill.engines.torch.program import make_program
    from vecmill.graphs.batch_layout import IndexedLayout
    from vecmill.graphs.ops import PACKED_OPERATOR
    from vecmill.graphs.steps import list_steps

    if isinstance(description.encoder, TransformersConfig):
        from vecmill.engines.torch.transformers_model import load_transformers_program

        return load_transformers_program(description, dtype, device)
    is_packed = packs_texts(dtype, device)
    operators = (PACKED_OPERATOR,) if is_packed else ()
    steps = list_steps(build_graph(description, IndexedLayout, runtime_operators=operators))
    program = make_program(steps, dtype=dtype, device=device)
    shares_prefixes, rounding = description.shares_prefixes and not is_packed, choose_rounding(plan, device)
    names, token_count = tuple(steps.inputs), description.token_count
    if device.type != "cuda":
        return IndexedProgram(
            lambda tensors: program(*tensors),
            names,
            device,
            output_shape=description.output_shape,
            token_count=token_count,
            shares_prefixes=shares_prefixes,
            rounding=rounding,
        )
    has_tokens = description.encoder.patch_values is None
    return OverlappedProgram(
        lambda tensors: program(*tensors),
        ProgramInputs(names, token_count, rounding, shares_prefixes),
        CudaCalls(device),
        output_shape=description.output_shape,
        shapes=list_shapes(description.max_tokens, is_packed=is_packed) if has_tokens else (),
    )


def packs_texts(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether attention on a device has a kernel for texts side by side.

    It has in 16 bits on NVIDIA's GPUs from Ampere on. On AMD's GPUs the kernel was never tried.
    """
    if device.type != "cuda" or dtype is torch.float32 or torch.version.hip is not None:
        return False
    has_kernel = find_spec("torch.nn.attention.varlen") is not None
    return has_kernel and torch.cuda.get_device_capability(device) >= _PACKED_CAPABILITY


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Have the calling thread's torch calls use `count` threads; restore the number afterwards.

    OpenMP keeps this number for each calling thread, so calls of different widths can run at once.
    """
    # At its first torch call a new thread inherits the number that another thread set last. Reading it first
    # triggers this inheritance early.
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
