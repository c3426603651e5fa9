"""AWS Inferentia and Trainium, by optimum-neuron: every shape is compiled ahead.

The compiler takes minutes for a shape, and what it makes runs that shape alone. So a grid of buckets (so many
texts of so many tokens, `engines.buckets`) is compiled at the first start and kept like any prepared model
(`engines.prepared`); a batch is divided among the buckets and padded. What comes back are hidden states or
logits of padded texts, of which the processor makes rows, by the same small graph that exported graphs use.

UNVERIFIED: written after the documentation and sources of optimum-neuron 0.4, without a chip at hand. What
touches it is `OptimumCompiler`, and no more; all else is tested with graphs of fixed shapes in its place.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self

from vecmill.engines.base import Survey, choose_precision
from vecmill.engines.buckets import Bucket, BucketGrid, pad_texts, select_texts
from vecmill.engines.calls import StagesCall, join_parts, make_rows
from vecmill.engines.prepared import PreparedModel, prepare_model
from vecmill.engines.warming import warm_engine
from vecmill.errors import InferenceFailed, InvalidConfig, UnsupportedModel
from vecmill.models import ModelDescription, Task, fingerprint_model
from vecmill.models.heads import HeadKind
from vecmill.plan import EnginePlan, Precision
from vecmill.types import Batch, CostModel, EngineInfo, FloatArray, IntArray, Row, Rows

logger = logging.getLogger(__name__)

DEVICE = "neuron"
STAGES_FILE = "stages.onnx"

# The compiler's own default is to multiply in bf16; fp32 has to be asked for.
_OFFERED = (Precision.FP32, Precision.BF16)

CompiledBucket = Callable[[Mapping[str, IntArray]], FloatArray]
"""From padded inputs (`pad_texts`) to float32 (texts, length, width); of a sequence head (texts, labels)."""


class Compiler(Protocol):
    """Compiles a model for one shape, and loads what it compiled."""

    @property
    def name(self) -> str:
        """What results depend on: the compiler and its release."""
        ...

    def compile(
        self, description: ModelDescription, bucket: Bucket, precision: Precision, folder: Path
    ) -> None:
        """Write a model of that shape into `folder`. Raises `UnsupportedModel`."""
        ...

    def load(self, description: ModelDescription, folder: Path) -> CompiledBucket:
        """Load what `compile` wrote, onto the device."""
        ...


class NeuronEngine:
    """A model in buckets. One call at a time; `stages` makes rows where the buckets give hidden states."""

    def __init__(
        self,
        info: EngineInfo,
        prepared: PreparedModel,
        grid: BucketGrid,
        buckets: Mapping[Bucket, CompiledBucket],
        stages: StagesCall | None,
        *,
        filler: int,
    ) -> None:
        self._info = info
        self._prepared = prepared
        self._grid = grid
        self._buckets = dict(buckets)
        self._stages = stages
        self._filler = filler
        self._turn = threading.Lock()

    @classmethod
    def load(cls, description: ModelDescription, plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Compile the model for every bucket if that has not been done, and load it. The first takes hours.

        Raises `InvalidConfig` for another device or precision, `UnsupportedModel` where the compiler does.
        """
        if plan.device not in (None, DEVICE):
            raise InvalidConfig(f"The neuron engine computes on {DEVICE}, not on {plan.device}.")
        grid = BucketGrid.covering(description.max_tokens)
        return cls.load_with(OptimumCompiler(), description, plan, grid, cores=cores, cache_dir=cache_dir)

    @classmethod
    def load_with(
        cls,
        compiler: Compiler,
        description: ModelDescription,
        plan: EnginePlan,
        grid: BucketGrid,
        *,
        cores: int,
        cache_dir: Path,
    ) -> Self:
        """As `load`, by any compiler and for any grid."""
        # Imported here: rows are made by ONNX Runtime on the processor.
        from vecmill.engines.onnx import open_graph

        precision = choose_precision(plan, _OFFERED)
        gives_tokens = _choose_model(description).gives_tokens
        sizes = "-".join("x".join(map(str, numbers)) for numbers in (grid.texts, grid.lengths))
        prepared = prepare_model(
            cache_dir,
            f"{fingerprint_model(description)}-{compiler.name}-{precision}-{sizes}",
            lambda folder: _fill(compiler, description, grid, precision, folder),
        )
        buckets = {
            bucket: compiler.load(description, prepared.folder / _bucket_name(bucket))
            for bucket in grid.buckets
        }
        info = EngineInfo(
            name="neuron",
            precision=precision,
            device=DEVICE,
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=(1,),
            form=description.row_form,
            parallel_calls=1,
            batch_tokens=plan.max_batch_tokens or grid.buckets[-1].texts * grid.lengths[0],
        )
        stages = StagesCall(open_graph(prepared.folder / STAGES_FILE, cores)) if gives_tokens else None
        padding = description.config.get("pad_token_id")
        return cls(info, prepared, grid, buckets, stages, filler=padding if isinstance(padding, int) else 0)

    @classmethod
    def survey(cls) -> Survey:
        """The chips that the driver shows."""
        has_chip = any(Path("/dev").glob("neuron[0-9]*"))
        return Survey({DEVICE: _OFFERED} if has_chip else {})

    @property
    def info(self) -> EngineInfo:
        """What this engine is and can do."""
        return self._info

    def warm_up(self) -> CostModel:
        """Run a few sizes, and fit the cost."""
        return warm_engine(self)

    def run(self, batch: Batch, *, width: int) -> Rows:
        """Compute rows in the form that `info` says. Raises `InferenceFailed` where the device fails."""
        if width != 1 or not self._buckets:
            raise InferenceFailed(f"The engine has no open model for {width} cores.")
        if batch.lengths.max() > self._grid.lengths[-1]:
            raise InferenceFailed(
                f"The engine failed on {len(batch)} texts of {len(batch.token_ids)} tokens: the longest "
                f"bucket has {self._grid.lengths[-1]}."
            )
        parts: dict[int, Row] = {}
        computed_tokens = 0
        for share in self._grid.divide(batch.lengths.tolist()):
            texts = select_texts(batch, share.places)
            computed = self._compute(texts, share.bucket).parts()
            parts |= zip(share.places, computed, strict=True)
            computed_tokens += share.bucket.texts * share.bucket.length
        return join_parts([parts[place] for place in range(len(batch))], computed_tokens=computed_tokens)

    def close(self) -> None:
        """Let go of the compiled models. Calls that are running finish first."""
        with self._turn:
            self._buckets.clear()
        self._prepared.close()

    def _compute(self, texts: Batch, bucket: Bucket) -> Rows:
        padded = pad_texts(texts, texts=bucket.texts, length=bucket.length, filler=self._filler)
        try:
            with self._turn:
                given = self._buckets[bucket](padded)[: len(texts)]
            longest = int(texts.lengths.max())
            outputs = [given] if self._stages is None else self._stages(texts, given[:, :longest])
        except Exception as error:
            raise InferenceFailed(
                f"The device failed on {len(texts)} texts in a bucket of {bucket.texts} of {bucket.length} "
                f"tokens: {type(error).__name__}."
            ) from error
        return make_rows(self._info.form, outputs, texts, computed_tokens=0)


@dataclass(frozen=True, slots=True)
class _NeuronModel:
    """A class of optimum-neuron, what it gives that is read, and whether that is one row for each token."""

    name: str
    output: str
    gives_tokens: bool


def _choose_model(description: ModelDescription) -> _NeuronModel:
    """The class for a model's task. Raises `UnsupportedModel`."""
    match description.task, description.head and description.head.kind:
        case (Task.EMBED | Task.MULTI_VECTOR, None) if description.architecture != "static":
            return _NeuronModel("NeuronModelForFeatureExtraction", "last_hidden_state", True)
        case (Task.RERANK | Task.CLASSIFY, HeadKind.SEQUENCE):
            return _NeuronModel("NeuronModelForSequenceClassification", "logits", False)
        case (Task.CLASSIFY_TOKENS, HeadKind.TOKENS):
            return _NeuronModel("NeuronModelForTokenClassification", "logits", True)
        case (Task.SPARSE, HeadKind.VOCABULARY):
            return _NeuronModel("NeuronModelForMaskedLM", "logits", True)
    raise UnsupportedModel(
        f"{description.directory}: the neuron engine does not run models for {description.task} of this "
        "kind. Use the onnx engine."
    )


def _bucket_name(bucket: Bucket) -> str:
    return f"{bucket.texts}x{bucket.length}"


def _width(description: ModelDescription) -> int:
    """Columns of what a bucket gives for each token."""
    match description.task:
        case Task.SPARSE:
            return description.encoder.vocab_size
        case Task.CLASSIFY_TOKENS:
            return description.dim
    return description.encoder.hidden_size


def _fill(
    compiler: Compiler, description: ModelDescription, grid: BucketGrid, precision: Precision, folder: Path
) -> None:
    """Compile every bucket into a folder of its own, and write the graph that makes rows."""
    from vecmill.graphs.build import write_graph
    from vecmill.graphs.exported import build_stages

    if _choose_model(description).gives_tokens:
        write_graph(build_stages(description, _width(description)), folder / STAGES_FILE)
    for number, bucket in enumerate(grid.buckets, start=1):
        logger.info("compiling %d of %d: %s tokens", number, len(grid.buckets), _bucket_name(bucket))
        target = folder / _bucket_name(bucket)
        target.mkdir()
        compiler.compile(description, bucket, precision, target)


class OptimumCompiler:
    """The compile and load calls of optimum-neuron 0.4. UNVERIFIED.

    Source: `optimum/neuron/modeling_traced.py` and `modeling.py`, `optimum/exporters/neuron/convert.py`.
    """

    @property
    def name(self) -> str:
        """As `Compiler.name`."""
        return f"neuron-{version('neuronx-cc')}"

    def compile(
        self, description: ModelDescription, bucket: Bucket, precision: Precision, folder: Path
    ) -> None:
        """As `Compiler.compile`."""
        # Without `auto_cast` optimum passes `--auto-cast none` to the compiler, which is fp32.
        casts = {"auto_cast": "matmul", "auto_cast_type": "bf16"} if precision is Precision.BF16 else {}
        try:
            model = _model_class(description).from_pretrained(
                str(description.weights_files[0].parent),
                export=True,
                local_files_only=True,
                disable_neuron_cache=True,
                batch_size=bucket.texts,
                sequence_length=bucket.length,
                **casts,
            )
        except (KeyError, NotImplementedError, RuntimeError, ValueError) as error:
            raise UnsupportedModel(
                f"{description.directory}: optimum-neuron cannot compile the model for {bucket.texts} texts "
                f"of {bucket.length} tokens: {error}"
            ) from error
        model.save_pretrained(str(folder))

    def load(self, description: ModelDescription, folder: Path) -> CompiledBucket:
        """As `Compiler.load`."""
        import torch

        model = _model_class(description).from_pretrained(str(folder), local_files_only=True)
        output = _choose_model(description).output
        names = tuple(model.input_static_shapes)

        def compute(padded: Mapping[str, IntArray]) -> FloatArray:
            with torch.inference_mode():
                given = model(**{name: torch.from_numpy(padded[name]) for name in names})
            values: FloatArray = getattr(given, output).float().cpu().numpy()
            return values

        return compute


def _model_class(description: ModelDescription) -> Any:
    import optimum.neuron

    return getattr(optimum.neuron, _choose_model(description).name)
