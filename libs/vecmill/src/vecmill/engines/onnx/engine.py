"""The ONNX Runtime engine, in fp32, int8 (`vecmill.quantization`), and bf16 on Arm processors that have it.

The first start builds the model's graph, lets ONNX Runtime optimise the graph and pack its weights, and
stores the result in the cache (`engines.prepared`). Every start opens this file without further optimisation,
in one session of one thread, and in as many sessions of each wider lane width as fit into the cores. The
number of threads of a session is fixed, and a session with several threads is slow when several callers use
it at once. All sessions map the same packed weights, so another session takes little memory.

The threads of a wide session spin while a call runs: waking a thread for each operator takes longer than
many operators do. They sleep as soon as the call ends, because the event loop and the client need the cores
to get the answer there.

Long texts that use all cores have a session of their own (`long_texts`). Its threads spin for `LONG_SPIN_US`
between two operators, and give way to the calls of short texts.

Execution providers other than the CPU provider (`engines.providers`) optimise graphs and pack weights by
themselves. For these providers the folder holds the plain graph, and one session serves all calls. Graphs
that another program exported (`engines.session_calls`) are prepared and opened like the graphs that vecmill
builds.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import onnxruntime

from vecmill.engines.base import EngineCapabilities, choose_precision, warm_engine
from vecmill.engines.long_texts import (
    LongTextCall,
    Shrinking,
    YieldingSession,
    count_padded,
)
from vecmill.engines.mapped_model import MappedModel
from vecmill.engines.onnx.preparation import build_in_memory, prepare
from vecmill.engines.onnx.sessions import (
    LONG_SPIN_US,
    open_cpu_session,
    open_prepared,
    session_options,
    shrinking_run,
)
from vecmill.engines.prepared import (
    PreparedModel,
)
from vecmill.engines.providers import ON_CPU, ProviderChoice, choose_provider, list_devices
from vecmill.engines.session_calls import (
    CallPool,
    IndexedCall,
    ModelCall,
    RaggedCall,
    make_embeddings,
    open_exported,
    read_prepared,
)
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.hardware.cores import lane_widths
from vecmill.hardware.memory import return_freed_memory
from vecmill.hardware.processor import multiplies_bf16, multiplies_bytes
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel, EngineInfo, EnginePlan, Precision

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

logger = logging.getLogger(__name__)


class OnnxEngine:
    """A model in ONNX Runtime, with the calls of each lane width.

    A session of one thread serves any number of callers at once, a wider one serves one caller at a time. So
    as many sessions of each wider width are opened as fit into `cores`, at least one. `open_call` opens a
    session for calls on a number of cores.
    """

    def __init__(
        self, info: EngineInfo, prepared: PreparedModel, open_call: Callable[[int], ModelCall], *, cores: int
    ) -> None:
        self.info = info
        self._mapped = MappedModel(prepared, lambda: _open_side_by_side(info.lane_widths, open_call, cores))

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Open the prepared model; prepare it first if it is missing. Blocks, for seconds at the first start.

        Raises `CorruptModel` if weights are missing, broken or of unexpected shapes, and `InvalidConfig` or
        `MissingExtra` for a device that is not available.
        """
        choice = choose_provider(plan.device, onnxruntime.get_available_providers(), cache_dir=cache_dir)
        wanted = Precision.FP32
        if description.exported_graph is None:
            wanted = choose_precision(plan, _offered(choice.is_cpu))
        prepared = prepare(description, wanted, choice, cache_dir)
        # In memory, each session has packed weights of its own.
        shares_weights = prepared.built is None
        widths: tuple[int, ...] = (1,)
        if choice.is_cpu:
            widths = lane_widths(plan.lane_widths, cores, has_middle=shares_weights)
        with prepared.closed_on_error():
            precision, is_finished = wanted, False
            if description.exported_graph is not None:  # an exported graph has one precision
                graph = read_prepared(prepared.folder)
                precision, is_finished = choose_precision(plan, (graph.precision,)), not graph.is_per_token
            info = _describe(description, plan, choice, precision, widths)
            info = replace(info, is_finished=is_finished)
            return cls(
                info,
                prepared,
                lambda width: _open_call(description, prepared, choice, plan, width),
                cores=cores if shares_weights else 1,
            )

    @classmethod
    def load_in_place(cls, description: "ModelDescription", *, cores: int) -> Self:
        """Open the model in fp32 on the CPU, from the weights where they are, to compare with its outputs.

        Writes nothing. Weights of 16 bits keep them, so that a large model needs little memory. Calls are
        slower than those of a prepared model. Raises the same errors as `load`.
        """
        plan = EnginePlan()
        info = _describe(description, plan, ON_CPU, Precision.FP32, (cores,))
        prepared = build_in_memory(description, keeps_16_bits=True)
        return cls(
            info, prepared, lambda width: _open_call(description, prepared, ON_CPU, plan, width), cores=1
        )

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        """Return the devices whose providers are in the installed wheel."""
        devices = list_devices(onnxruntime.get_available_providers())
        return EngineCapabilities({device: _offered(device == "cpu") for device in devices})

    @property
    def prepared_model_path(self) -> Path:
        """The file of the optimised graph, valid only for this processor and this release of ONNX Runtime."""
        return self._mapped.prepared.path

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Run batches of a few sizes on every session, and return the fitted cost of the narrowest."""
        return warm_engine(self, texts)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute embeddings of `info.output_shape`.

        Raises `InferenceFailed` if ONNX Runtime raises, and `DeviceLost` if the prepared files were changed
        and cannot be opened again.
        """
        if width not in self._mapped.sessions:
            raise InferenceFailed(f"The engine has no open session for calls on {width} cores.")
        try:
            outputs = self._mapped.run(lambda calls: calls[width](batch))
        except DeviceLost:
            raise
        except Exception as error:
            raise InferenceFailed(
                f"ONNX Runtime failed on {len(batch)} texts with {len(batch.token_ids)} tokens in total: "
                f"{type(error).__name__}."
            ) from error
        return make_embeddings(self.info, outputs, batch, computed_tokens=count_padded(batch))

    def renew(self) -> None:
        """Open new sessions from the prepared model, which is prepared again if its files have changed.

        A hung call can block other calls of a wide session, whose threads they share, and all calls on a
        device. Raises `UnsupportedModel` if ONNX Runtime cannot open a session.
        """
        self._mapped.renew()

    def close(self) -> None:
        """Close the sessions after the running calls."""
        self._mapped.sessions.clear()
        self._mapped.prepared.close()


def _describe(
    description: "ModelDescription",
    plan: EnginePlan,
    choice: ProviderChoice,
    precision: Precision,
    widths: tuple[int, ...],
) -> EngineInfo:
    return EngineInfo(
        name="onnx",
        precision=precision,
        device=choice.device,
        dim=description.dim,
        max_tokens=description.max_tokens,
        lane_widths=widths,
        output_shape=description.output_shape,
        normalizes=description.normalizes_output,
        parallel_calls=None if choice.is_cpu else 1,
        batch_tokens=plan.max_batch_tokens,
        shares_prefixes=description.shares_prefixes,
    )


def _open_side_by_side(
    widths: Sequence[int], open_call: Callable[[int], ModelCall], cores: int
) -> dict[int, ModelCall]:
    """Open the calls of all widths at once: the runtime hashes the packed weights on one core for each."""
    wanted = [width for width in widths for _ in range(1 if width == 1 else max(1, cores // width))]
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        opened = list(zip(wanted, pool.map(open_call, wanted), strict=True))
    return {width: CallPool([call for each, call in opened if each == width]) for width in widths}


def _offered(on_cpu: bool) -> tuple[Precision, ...]:
    """Return the precisions of the graphs that vecmill builds."""
    offered = [Precision.FP32]
    if on_cpu and multiplies_bf16():
        offered.append(Precision.BF16)
    if on_cpu and multiplies_bytes():
        offered += (Precision.INT8, Precision.INT8_FAST, Precision.INT8_BLOCKS)
    return tuple(offered)


def _open_call(
    description: "ModelDescription",
    prepared: PreparedModel,
    choice: ProviderChoice,
    plan: EnginePlan,
    threads: int,
) -> ModelCall:
    in_bf16 = plan.precision == Precision.BF16
    session = open_prepared(prepared, choice, session_options(threads, in_bf16=in_bf16))
    if description.exported_graph is not None:
        return open_exported(
            description, prepared.folder, session, lambda path: open_cpu_session(path, threads)
        )
    if choice.is_cpu:
        if description.has_long_texts:
            long_session: Shrinking = session
            if threads > 1 and prepared.built is None:  # else a session of its own packs weights of its own
                long_session = _open_for_long_texts(prepared, choice, threads, in_bf16=in_bf16)
            return LongTextCall(
                session,
                description.output_shape,
                long_session,
                shrinking_run(),
                return_freed_memory,
                shares_prefixes=description.shares_prefixes,
            )
        return RaggedCall(session, shares_prefixes=description.shares_prefixes)
    return IndexedCall(
        session,
        description.output_shape,
        token_count=description.token_count,
        compiles=choice.compiles,
        length_multiple=plan.length_multiple,
        shares_prefixes=description.shares_prefixes,
    )


def _open_for_long_texts(
    prepared: PreparedModel, choice: ProviderChoice, threads: int, *, in_bf16: bool
) -> Shrinking:
    """Return a session whose threads keep no core from other calls: they have a low priority."""
    options = session_options(threads, spin_us=LONG_SPIN_US, in_bf16=in_bf16)
    return YieldingSession(lambda: open_prepared(prepared, choice, options))
