"""The precision gate: refuses to serve a model in a precision that loses too much accuracy.

The accuracy loss of 8-bit and 16-bit precisions depends on the weights: some networks amplify rounding
errors. So the first load of a model in less than fp32 compares the engine's outputs for some texts with the
outputs in fp32. The result is stored beside the prepared models, and later starts only read the file:

    cache_dir/<fingerprint>-<engine>-<precision>-<device>-<processor>.proof.json

fp32 and exact engines are not checked. A model whose worst cosine is below the minimum in `MIN_COSINES` is
refused.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from vecmill.engines import ENGINES, load_engine, load_exact_engine
from vecmill.engines.base import Engine
from vecmill.errors import UnsupportedModel
from vecmill.hardware.processor import processor_name
from vecmill.models import ModelDescription, fingerprint_model
from vecmill.models.digests import has_digest
from vecmill.models.encoder_config import TransformersConfig
from vecmill.values.engine_plan import DEFAULT_ENGINE, EnginePlan, Precision
from vecmill.values.json_text import decode_json
from vecmill.values.sample_texts import sample_texts
from vecmill.verification.comparison import compare_with_reference
from vecmill.verification.model_outputs import ModelProcessor, compute_in_batches
from vecmill.verification.reference import LoadedReference

logger = logging.getLogger(__name__)

# The least cosine between an output and its fp32 output, of the worst of the texts. Other texts may be worse;
# a fifth of the accepted loss (0.999 in 16 bits, 0.99 in 8 bits) is reserved for them.
MIN_COSINES: Mapping[Precision, float] = {
    Precision.FP16: 0.9992,
    Precision.BF16: 0.9992,
    Precision.INT8: 0.992,
    Precision.INT8_FAST: 0.992,
    Precision.INT8_BLOCKS: 0.992,
}
# What is accepted of any text. The worst text of other texts than those of the gate may be as bad as this.
ACCEPTED_COSINES: Mapping[str, float] = {
    precision: 0.999 if precision in (Precision.FP16, Precision.BF16) else 0.99 for precision in MIN_COSINES
}
# Errors have long tails, so the worst text shows only among many. Calibration uses other passages.
TEXTS, SEED = 200, 20_260_113


@dataclass(frozen=True, slots=True)
class PrecisionResult:
    """The result of a precision check of `texts` texts or pairs: the lowest cosine with the fp32 outputs."""

    worst_cosine: float
    texts: int

    @classmethod
    def read(cls, file: Path) -> "PrecisionResult | None":
        """Read the result of an earlier start, `None` if there is no readable result."""
        try:
            document = decode_json(file.read_text(encoding="utf-8"))
            return cls(float(document["worst_cosine"]), int(document["texts"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, file: Path) -> None:
        """Store the result for later starts; log a warning if the file cannot be written."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_text(json.dumps(asdict(self)), encoding="utf-8")
        except OSError as error:
            logger.warning("%s cannot be written (%s): each start checks again.", file, error.strerror)

    def require(self, min_cosine: float, description: ModelDescription, plan: EnginePlan) -> None:
        """Raise `UnsupportedModel` if the worst cosine is below `min_cosine`."""
        # Written so that NaN fails.
        if not self.worst_cosine >= min_cosine:
            raise UnsupportedModel(
                f"{description.name} loses too much accuracy in {plan.precision} on the {plan.engine} "
                f"engine: the lowest cosine with fp32 over {self.texts} texts is {self.worst_cosine:.4f}, "
                f"and the minimum is {min_cosine:g}. Choose --precision fp32."
            )


def load_gated_engine(
    description: ModelDescription, plan: EnginePlan, *, cores: int, cache_dir: Path
) -> Engine:
    """Load the planned engine as `load_engine` does, and check the planned precision.

    Blocks; the first load in less than fp32 loads an fp32 engine too. Raises the same errors as
    `load_engine`, and `UnsupportedModel` with the cosine if the model loses too much accuracy.
    """
    min_cosine = None if plan.precision is None else MIN_COSINES.get(plan.precision)
    if min_cosine is None or description.exported_graph is not None:
        return load_engine(description, plan, cores=cores, cache_dir=cache_dir)
    file = cache_dir / _file_name(description, plan, cache_dir)
    result = PrecisionResult.read(file)
    if result is not None:
        result.require(min_cosine, description, plan)
    engine = load_engine(description, plan, cores=cores, cache_dir=cache_dir)
    if result is None:
        try:
            result = measure_precision_loss(description, engine, cores=cores, cache_dir=cache_dir)
            result.write(file)
            result.require(min_cosine, description, plan)
        except BaseException:
            engine.close()
            raise
    logger.info(
        "%s in %s on %s: the lowest cosine with fp32 over %d texts was %.4f, and the minimum is %g.",
        description.name,
        plan.precision,
        plan.engine,
        result.texts,
        result.worst_cosine,
        min_cosine,
    )
    return engine


def read_precision_result(
    description: ModelDescription, plan: EnginePlan, *, cache_dir: Path
) -> PrecisionResult | None:
    """Return what the check of this plan on this processor has found; `None` if there was no check.

    Raises `CorruptModel` if the files of the model were removed.
    """
    return PrecisionResult.read(cache_dir / _file_name(description, plan, cache_dir))


@dataclass(frozen=True, slots=True)
class FoundCheck:
    """What the check of one precision has found on this processor; `device` is `any` if none was named."""

    engine: str
    precision: str
    device: str
    min_cosine: float
    result: PrecisionResult


def list_checks(description: ModelDescription, *, cache_dir: Path) -> list[FoundCheck]:
    """Return what the checks of a model have found in all precisions, without reading the weights.

    Nothing is found for weights whose digest is not kept. Raises `CorruptModel` if files were removed.
    """
    ending = f"-{processor_name()}.proof.json"
    files = sorted(cache_dir.glob(f"*{ending}"))
    if not files or not all(has_digest(path, cache_dir) for path in description.weights_files):
        return []
    beginning = f"{fingerprint_model(description, cache_dir)}-"
    names = {
        f"{beginning}{engine}-{precision}-": (engine, precision)
        for engine in ENGINES
        for precision in sorted(MIN_COSINES, key=len, reverse=True)  # int8-fast before int8
    }
    found = []
    for file in files:
        start = next((start for start in names if file.name.startswith(start)), None)
        result = PrecisionResult.read(file)
        if start is not None and result is not None:
            engine, precision = names[start]
            device = file.name.removeprefix(start).removesuffix(ending)
            found.append(FoundCheck(engine, precision, device, MIN_COSINES[precision], result))
    return found


def measure_precision_loss(
    description: ModelDescription, engine: Engine, *, cores: int, cache_dir: Path
) -> PrecisionResult:
    """Compare the outputs of `engine` with the outputs in fp32. Raises the same errors as `load_engine`."""
    logger.info("Checking %s in %s; this happens once.", description.name, engine.info.precision)
    exact = _load_exact(description, engine, cores=cores, cache_dir=cache_dir)
    try:
        processor = ModelProcessor.load(description)
        reference = LoadedReference(
            "fp32", lambda inputs: compute_in_batches(exact, processor, inputs, seed=SEED)
        )
        texts = sample_texts(TEXTS, seed=SEED)
        found = compare_with_reference(description, engine, reference, texts, seed=SEED).comparison
    finally:
        exact.close()
    return PrecisionResult(found.worst_cosine, found.count)


def _load_exact(description: ModelDescription, engine: Engine, *, cores: int, cache_dir: Path) -> Engine:
    """Load the model in fp32: on the CPU by the default engine, else on the device of `engine`."""
    device = engine.info.device
    runs_anywhere = ENGINES[DEFAULT_ENGINE].is_installed and not isinstance(
        description.encoder, TransformersConfig
    )
    if device == "cpu" and runs_anywhere:
        return load_exact_engine(description, cores=cores)
    plan = EnginePlan(engine.info.name, Precision.FP32, device)
    return load_engine(description, plan, cores=cores, cache_dir=cache_dir)


def _file_name(description: ModelDescription, plan: EnginePlan, cache_dir: Path) -> str:
    device = (plan.device or "any").replace(":", "-")
    where = f"{plan.engine}-{plan.precision}-{device}-{processor_name()}"
    return f"{fingerprint_model(description, cache_dir)}-{where}.proof.json"
