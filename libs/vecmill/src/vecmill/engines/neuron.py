"""The engine for AWS Inferentia and Trainium, through optimum-neuron, with all shapes compiled in advance.

The compiler takes minutes for each shape, and a compiled model runs only its own shape. So the first start
compiles a grid of buckets (`engines.buckets`) and stores the compiled models in the cache of prepared models
(`engines.prepared`). A batch is divided among the buckets and padded. The device returns hidden states or
logits of padded texts; the processor turns these into embeddings with the same small graph that exported
graphs use.

UNVERIFIED: written from the documentation and sources of optimum-neuron 0.4, without access to a chip. Only
`OptimumCompiler` calls optimum-neuron; tests replace it with graphs of fixed shapes.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self

from vecmill.engines.base import EngineCapabilities, choose_precision, warm_engine
from vecmill.engines.buckets import Bucket, BucketGrid, pad_texts, select_texts
from vecmill.engines.prepared import PreparedModel, prepare_model
from vecmill.engines.session_calls import STAGES_FILE, StagesCall, join_embeddings, make_embeddings
from vecmill.errors import InferenceFailed, InvalidConfig, UnsupportedModel
from vecmill.models import ModelDescription, Task, prepared_name
from vecmill.models.config_fields import read_token_id
from vecmill.models.heads import HeadKind
from vecmill.models.weights import fp32_bytes
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embedding, Embeddings
from vecmill.values.engine_plan import CostModel, EngineInfo, EnginePlan, Precision

logger = logging.getLogger(__name__)

DEVICE = "neuron"

# The compiler's default is bf16 multiplication; fp32 has to be requested.
_OFFERED = (Precision.FP32, Precision.BF16)

CompiledBucket = Callable[[Mapping[str, IntArray]], FloatArray]
"""Maps padded inputs (`pad_texts`) to float32 (texts, length, width); sequence heads: (texts, labels)."""


class Compiler(Protocol):
    """A compiler that compiles a model for one shape and loads the compiled model."""

    @property
    def name(self) -> str:
        """The compiler and its release, for the name of the prepared folder."""
        ...

    def compile(
        self, description: ModelDescription, bucket: Bucket, precision: Precision, folder: Path
    ) -> None:
        """Write the model, compiled for the shape of `bucket`, to `folder`. Raises `UnsupportedModel`."""
        ...

    def load(self, description: ModelDescription, folder: Path) -> CompiledBucket:
        """Load the compiled model in `folder` onto the device."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedBuckets:
    """The compiled models on the device. `turn` lets one call at a time run."""

    buckets: dict[Bucket, CompiledBucket]
    turn: threading.Lock = field(default_factory=threading.Lock)


class NeuronEngine:
    """A model compiled for a grid of buckets, one call at a time.

    `load_buckets` loads the compiled models onto the device. `stages` turns hidden states into embeddings,
    for models whose buckets return hidden states.
    """

    def __init__(
        self,
        info: EngineInfo,
        prepared: PreparedModel,
        grid: BucketGrid,
        load_buckets: Callable[[], LoadedBuckets],
        stages: StagesCall | None,
        *,
        pad_id: int,
    ) -> None:
        self.info = info
        self._prepared = prepared
        self._grid = grid
        self._load_buckets = load_buckets
        self._loaded = load_buckets()
        self._stages = stages
        self._filler = pad_id

    @classmethod
    def load(cls, description: ModelDescription, plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Load the model, compiled for every bucket. Blocks; compilation at the first start takes hours.

        Raises `InvalidConfig` for an unsupported device or precision, and `UnsupportedModel` if the compiler
        raises it.
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
        """Load the model as `load` does, with any compiler and any grid."""
        # Imported here, since ONNX Runtime is needed for the stages alone.
        from vecmill.engines.onnx.sessions import open_cpu_session

        precision = choose_precision(plan, _OFFERED)
        gives_tokens = _choose_model(description).gives_tokens
        sizes = "-".join("x".join(map(str, numbers)) for numbers in (grid.texts, grid.lengths))
        prepared = prepare_model(
            cache_dir,
            f"{prepared_name(description, cache_dir)}-{compiler.name}-{precision}-{sizes}",
            lambda folder: _fill(compiler, description, grid, precision, folder),
            estimate_bytes=lambda: len(grid.buckets) * fp32_bytes(description.weights_files),
        )

        def load_buckets() -> LoadedBuckets:
            folders = {bucket: prepared.folder / _bucket_name(bucket) for bucket in grid.buckets}
            return LoadedBuckets(
                {bucket: compiler.load(description, folder) for bucket, folder in folders.items()}
            )

        info = EngineInfo(
            name="neuron",
            precision=precision,
            device=DEVICE,
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=(1,),
            output_shape=description.output_shape,
            normalizes=description.normalizes_output,
            parallel_calls=1,
            batch_tokens=plan.max_batch_tokens or grid.buckets[-1].texts * grid.lengths[0],
        )
        pad_id = max(0, read_token_id(description.config, "pad_token_id", None) or 0)
        with prepared.closed_on_error():
            stages = (
                StagesCall(open_cpu_session(prepared.folder / STAGES_FILE, cores)) if gives_tokens else None
            )
            return cls(info, prepared, grid, load_buckets, stages, pad_id=pad_id)

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        """Return the device if the driver shows a chip."""
        has_chip = any(Path("/dev").glob("neuron[0-9]*"))
        return EngineCapabilities({DEVICE: _OFFERED} if has_chip else {})

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Run batches of a few sizes and return the fitted cost."""
        return warm_engine(self, texts)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute embeddings of `info.output_shape`. Raises `InferenceFailed` if the device fails."""
        loaded = self._loaded
        if width != 1 or not loaded.buckets:
            raise InferenceFailed(f"The engine has no loaded model for calls on {width} cores.")
        if batch.lengths.max() > self._grid.lengths[-1]:
            raise InferenceFailed(
                f"The engine failed on {len(batch)} texts with {len(batch.token_ids)} tokens in total: the "
                f"longest bucket has {self._grid.lengths[-1]} tokens."
            )
        parts: dict[int, Embedding] = {}
        computed_tokens = 0
        for assignment in self._grid.divide(batch.lengths.tolist()):
            bucket, indices = assignment.bucket, assignment.text_indices
            computed = self._compute(loaded, select_texts(batch, indices), bucket).split()
            parts |= zip(indices, computed, strict=True)
            computed_tokens += bucket.texts * bucket.length
        return join_embeddings([parts[index] for index in range(len(batch))], computed_tokens=computed_tokens)

    def renew(self) -> None:
        """Load the compiled models onto the device again, since calls wait for a hung call.

        Takes the memory of another copy on the device. Raises any error of optimum-neuron.
        """
        self._prepared.restore()
        self._loaded = self._load_buckets()

    def close(self) -> None:
        """Release the compiled models after the running call."""
        with self._loaded.turn:
            self._loaded.buckets.clear()
        self._prepared.close()

    def _compute(self, loaded: LoadedBuckets, texts: Batch, bucket: Bucket) -> Embeddings:
        padded = pad_texts(texts, texts=bucket.texts, length=bucket.length, pad_id=self._filler)
        try:
            with loaded.turn:
                given = loaded.buckets[bucket](padded)[: len(texts)]
            longest = int(texts.lengths.max())
            outputs = [given] if self._stages is None else self._stages(texts, given[:, :longest])
        except Exception as error:
            raise InferenceFailed(
                f"The device failed on {len(texts)} texts in a bucket of {bucket.texts} texts of "
                f"{bucket.length} tokens: {type(error).__name__}."
            ) from error
        return make_embeddings(self.info, outputs, texts, computed_tokens=0)


@dataclass(frozen=True, slots=True)
class _NeuronModel:
    """A class of optimum-neuron, the output in use, and whether this output has one vector per token."""

    name: str
    output: str
    gives_tokens: bool


def _choose_model(description: ModelDescription) -> _NeuronModel:
    """Return the class of optimum-neuron for the task of a model. Raises `UnsupportedModel`."""
    if description.adapter is not None:
        raise UnsupportedModel(
            f"{description.adapter.config_file}: the neuron engine does not merge adapters. Use the onnx, "
            "openvino or torch engine."
        )
    if not description.encoder.is_in_transformers:
        raise UnsupportedModel(
            f"{description.directory}: the neuron engine runs classes of transformers, which has none for "
            "this model. Use the onnx, openvino or torch engine."
        )
    if description.weighted_layers is not None:
        raise UnsupportedModel(
            f"{description.directory}: the neuron engine does not support WeightedLayerPooling. Use the "
            "onnx, openvino or torch engine."
        )
    match description.task, description.head and description.head.kind:
        case (Task.EMBED | Task.MULTI_VECTOR, None) if description.encoder.has_attention:
            return _NeuronModel("NeuronModelForFeatureExtraction", "last_hidden_state", True)
        case (Task.RERANK | Task.CLASSIFY, HeadKind.SEQUENCE):
            return _NeuronModel("NeuronModelForSequenceClassification", "logits", False)
        case (Task.CLASSIFY_TOKENS, HeadKind.TOKENS):
            return _NeuronModel("NeuronModelForTokenClassification", "logits", True)
        case (Task.SPARSE, HeadKind.VOCABULARY):
            return _NeuronModel("NeuronModelForMaskedLM", "logits", True)
    raise UnsupportedModel(
        f"{description.directory}: the neuron engine does not support this kind of model for "
        f"{description.task}. Use the onnx engine."
    )


def _bucket_name(bucket: Bucket) -> str:
    return f"{bucket.texts}x{bucket.length}"


def _width(description: ModelDescription) -> int:
    """Return the number of columns of a bucket's output for each token."""
    match description.task:
        case Task.SPARSE:
            return description.encoder.vocab_size
        case Task.CLASSIFY_TOKENS:
            return description.dim
    return description.encoder.output_size


def _fill(
    compiler: Compiler, description: ModelDescription, grid: BucketGrid, precision: Precision, folder: Path
) -> None:
    """Write the graph of the stages, and compile every bucket into a folder of its own."""
    from vecmill.graphs.exported import build_stages
    from vecmill.graphs.finish import write_graph

    if _choose_model(description).gives_tokens:
        write_graph(build_stages(description, _width(description)), folder / STAGES_FILE)
    for number, bucket in enumerate(grid.buckets, start=1):
        logger.info("Compiling bucket %d of %d: %s tokens.", number, len(grid.buckets), _bucket_name(bucket))
        target = folder / _bucket_name(bucket)
        target.mkdir()
        compiler.compile(description, bucket, precision, target)


class OptimumCompiler:
    """The compiler of optimum-neuron 0.4. UNVERIFIED.

    Source: `optimum/neuron/modeling_traced.py` and `modeling.py`, `optimum/exporters/neuron/convert.py`.
    """

    @property
    def name(self) -> str:
        """The name and release of the compiler."""
        return f"neuron-{version('neuronx-cc')}"

    def compile(
        self, description: ModelDescription, bucket: Bucket, precision: Precision, folder: Path
    ) -> None:
        """Compile the model for `bucket`; see `Compiler.compile`."""
        if description.has_pytorch_weights:
            raise UnsupportedModel(
                f"{description.weights_files[0]}: the neuron engine reads only safetensors. Save the model "
                "as safetensors, with any recent transformers."
            )
        # Without `auto_cast` optimum passes `--auto-cast none` to the compiler, which means fp32.
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
        """Load the compiled model in `folder`; see `Compiler.load`."""
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
