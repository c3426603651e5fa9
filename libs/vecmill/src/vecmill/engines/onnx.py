"""ONNX Runtime on the CPU, fp32.

The first start builds the model's graph, lets ONNX Runtime optimise it and pack its weights, and keeps the
result (`engines.prepared`). Every start opens that file as it is, once per lane width: a session
has the threads that it was made with, and one made for several threads is slow for several
callers. Both sessions map the same packed weights, so the second costs next to no memory.

Nothing spins: an idle lane leaves its cores to others.
"""

import gc
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnxruntime

from vecmill.engines.prepared import (
    MODEL_FILE,
    WEIGHTS_FILE,
    PreparedModel,
    prepare_model,
    processor_name,
)
from vecmill.errors import InferenceFailed, UnsupportedModel
from vecmill.models import fingerprint_model
from vecmill.types import Batch, CostModel, EngineInfo, RowForm, Rows, TokenSequence

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

_ERRORS_ONLY = 3  # ONNX Runtime's log severity; a failed call raises all the same
# ONNX Runtime 1.31 crashes when it runs from the stored packing of a large DeBERTa, whose distance
# tables are products of constants with an axis for heads. Each session packs these weights itself.
_UNPACKED = frozenset({"deberta-v2"})
_WARM_UP_TOKENS = (16, 64, 256)
_WARM_UP_ROUNDS = 2


class OnnxEngine:
    """A model in ONNX Runtime: one narrow session for any number of callers, one wide one for one caller."""

    def __init__(
        self,
        info: EngineInfo,
        prepared: PreparedModel,
        sessions: Mapping[int, "onnxruntime.InferenceSession"],
    ) -> None:
        self._info = info
        self._prepared = prepared
        self._sessions = dict(sessions)
        self._inputs = [found.name for found in sessions[info.lane_widths[0]].get_inputs()]

    @classmethod
    def load(cls, description: "ModelDescription", *, cores: int, cache_dir: Path) -> Self:
        """Prepare the model if this machine has not yet, and open it. Blocks; seconds at the first start.

        Raises `CorruptModel` if weights are missing, broken or not what was promised.
        """
        name = f"{fingerprint_model(description)}-{onnxruntime.__version__}-{processor_name()}"
        prepared = prepare_model(cache_dir, name, lambda folder: _fill(description, folder))
        widths = (1, cores) if cores > 1 else (1,)
        info = EngineInfo(
            name="onnx",
            precision="fp32",
            device="cpu",
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=widths,
            form=description.row_form,
        )
        return cls(info, prepared, {width: _open(prepared.path, width) for width in widths})

    @property
    def info(self) -> EngineInfo:
        """What this engine is and can do."""
        return self._info

    @property
    def prepared_model_path(self) -> Path:
        """The optimised graph on disk, for this processor and release of ONNX Runtime alone."""
        return self._prepared.path

    def warm_up(self) -> CostModel:
        """Run a few sizes on every session, so that buffers are there, and fit the narrow one's cost."""
        batches = [_warm_up_batch(tokens, self._info.max_tokens) for tokens in _WARM_UP_TOKENS]
        for width in self._info.lane_widths[1:]:
            for batch in batches:
                self.run(batch, width=width)
        times_s = [self._time(batch) for batch in batches]
        return _fit_cost([len(batch.token_ids) for batch in batches], times_s)

    def run(self, batch: Batch, *, width: int) -> Rows:
        """Compute rows in the form that `info` says. Raises `InferenceFailed` where ONNX Runtime raises."""
        session = self._sessions.get(width)
        if session is None:
            raise InferenceFailed(f"The engine has no open session for {width} cores.")
        feed = {name: getattr(batch, name) for name in self._inputs}
        try:
            outputs = session.run(None, feed)
        except Exception as error:
            raise InferenceFailed(
                f"ONNX Runtime failed on {len(batch)} texts of {len(batch.token_ids)} tokens: "
                f"{type(error).__name__}."
            ) from error
        return _rows(self._info.form, outputs, batch)

    def close(self) -> None:
        """Close the sessions; calls that are running finish first."""
        self._sessions.clear()
        self._prepared.close()

    def _time(self, batch: Batch) -> float:
        """Seconds of the fastest of a few narrow calls."""
        times_s = []
        for _ in range(_WARM_UP_ROUNDS):
            start_s = time.perf_counter()
            self.run(batch, width=1)
            times_s.append(time.perf_counter() - start_s)
        return min(times_s)


def _rows(form: RowForm, outputs: list[Any], batch: Batch) -> Rows:
    computed_tokens = len(batch) * int(batch.lengths.max())
    match form:
        case RowForm.TEXT:
            return Rows.one_per_text(outputs[0], computed_tokens=computed_tokens)
        case RowForm.TOKEN:
            return Rows(outputs[0], batch.offsets, computed_tokens)
        case RowForm.SPARSE:
            values, columns, counts = outputs
            return Rows(values, np.concatenate(([0], np.cumsum(counts))), computed_tokens, columns)


def _open(path: Path, threads: int) -> "onnxruntime.InferenceSession":
    options = _options(threads)
    # The file is optimised already; doing it again would undo the sharing of packed weights.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _start(path, options)


def _options(threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _start(path: Path, options: Any) -> "onnxruntime.InferenceSession":
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UnsupportedModel(f"ONNX Runtime cannot load {path}: {error}") from error


def _fill(description: "ModelDescription", folder: Path) -> None:
    """Build the graph, and have ONNX Runtime write it optimised, with packed weights, into `folder`."""
    # Imported only when a graph has to be built: it takes longer than a later start as a whole.
    from vecmill.graphs.build import build_graph, write_graph

    with tempfile.TemporaryDirectory(prefix="graph-", dir=folder) as scratch:
        plain = Path(scratch) / "plain.onnx"
        write_graph(build_graph(description), plain)
        # A graph's nodes refer to each other, so only the collector frees it, and the mapped weights with it.
        gc.collect()
        packed = "0" if description.architecture in _UNPACKED else "1"
        options = _options(threads=1)
        options.optimized_model_filepath = str(folder / MODEL_FILE)
        for key, value in (
            ("optimized_model_external_initializers_file_name", WEIGHTS_FILE),
            ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
            ("save_external_prepacked_constant_initializers", packed),
        ):
            options.add_session_config_entry(f"session.{key}", value)
        _start(plain, options)


def _warm_up_batch(tokens: int, max_tokens: int) -> Batch:
    """Texts of about `tokens` tokens altogether, each of id 0, which every vocabulary has."""
    length = min(tokens, max_tokens, 64)
    return Batch.of([TokenSequence.of([0] * length)] * max(1, tokens // length))


def _fit_cost(tokens: list[int], times_s: list[float]) -> CostModel:
    """The straight line through measured times, neither part of it negative."""
    slope, intercept = np.polynomial.Polynomial.fit(tokens, times_s, 1).convert().coef[::-1]
    return CostModel(fixed_s=max(float(intercept), 0.0), per_token_s=max(float(slope), 1e-9))
