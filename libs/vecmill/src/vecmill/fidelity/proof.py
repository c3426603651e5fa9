"""Showing that a precision is good enough for a model before it is served: rounding ruins some models.

How it works. What 8 or 16 bits cost depends on the weights: a network that makes small differences large
makes large errors of small ones. So the first time that a model is loaded in less than fp32, what the engine
answers over some texts is compared with what fp32 answers. What came out is kept beside the prepared models,
so later starts only read it:

    cache_dir/<fingerprint>-<engine>-<precision>-<device>-<processor>.proof.json

fp32 needs no proof, and neither do exact engines. A model that loses more than `FLOORS` allow is refused.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from vecmill.engines import ENGINES, load_engine
from vecmill.engines.base import Engine
from vecmill.engines.prepared import processor_name
from vecmill.errors import UnsupportedModel
from vecmill.fidelity.answers import Reader, answer_in_company
from vecmill.fidelity.check import check_fidelity
from vecmill.fidelity.reference import LoadedReference
from vecmill.fidelity.sample import sample_texts
from vecmill.models import ModelDescription, fingerprint_model
from vecmill.models.library import LibraryConfig
from vecmill.plan import DEFAULT_ENGINE, EnginePlan, Precision

logger = logging.getLogger(__name__)

# The cosine between an answer and that of fp32, of the worst of the texts. Other texts may be worse, and none
# should be below 0.999 in 16 bits or 0.99 in 8: a fifth of that loss is left for them.
FLOORS: Mapping[Precision, float] = MappingProxyType(
    {
        Precision.FP16: 0.9992,
        Precision.BF16: 0.9992,
        Precision.INT8: 0.992,
        Precision.INT8_FAST: 0.992,
    }
)
# Errors have long tails: the worst of many texts says more than that of a few. Other passages calibrate.
TEXTS, SEED = 200, 20_260_113


@dataclass(frozen=True, slots=True)
class Proof:
    """The cosine of the worst of `texts` texts or pairs, with fp32 as the truth."""

    worst_cosine: float
    texts: int

    @classmethod
    def read(cls, file: Path) -> "Proof | None":
        """What was found at an earlier start; `None` if there is nothing that can be read."""
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            return cls(float(document["worst_cosine"]), int(document["texts"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, file: Path) -> None:
        """Keep it for later starts, where that can be."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_text(json.dumps(asdict(self)), encoding="utf-8")
        except OSError as error:
            logger.warning("%s cannot be written (%s): each start measures anew.", file, error.strerror)

    def require(self, floor: float, description: ModelDescription, plan: EnginePlan) -> None:
        """Raise `UnsupportedModel` if this is less than `floor`."""
        # Written so that NaN fails.
        if not self.worst_cosine >= floor:
            raise UnsupportedModel(
                f"{description.name} loses too much in {plan.precision} on the {plan.engine} engine: over "
                f"{self.texts} texts the cosine with fp32 is {self.worst_cosine:.4f} for the worst, and has "
                f"to be {floor:g}. Choose --precision fp32."
            )


def load_proven_engine(
    description: ModelDescription, plan: EnginePlan, *, cores: int, cache_dir: Path
) -> Engine:
    """As `load_engine`, for a plan whose precision is good enough for the model.

    Blocks; the first time in less than fp32 it loads an fp32 engine too. Raises as `load_engine`, and
    `UnsupportedModel` with the figure where the model loses too much.
    """
    floor = None if plan.precision is None else FLOORS.get(plan.precision)
    if floor is None or description.exported_graph is not None:
        return load_engine(description, plan, cores=cores, cache_dir=cache_dir)
    file = cache_dir / _file_name(description, plan)
    proof = Proof.read(file)
    if proof is not None:
        proof.require(floor, description, plan)
    engine = load_engine(description, plan, cores=cores, cache_dir=cache_dir)
    if proof is None:
        try:
            proof = measure_loss(description, engine, cores=cores, cache_dir=cache_dir)
            proof.write(file)
            proof.require(floor, description, plan)
        except BaseException:
            engine.close()
            raise
    return engine


def measure_loss(description: ModelDescription, engine: Engine, *, cores: int, cache_dir: Path) -> Proof:
    """Compare what `engine` answers with what fp32 answers. Raises as `load_engine`."""
    logger.info("Measuring what %s costs %s; this happens once.", engine.info.precision, description.name)
    exact = load_engine(description, _exact_plan(description, engine), cores=cores, cache_dir=cache_dir)
    try:
        reader = Reader.load(description)
        reference = LoadedReference(
            "fp32", lambda questions: answer_in_company(exact, reader, questions, seed=SEED)
        )
        texts = sample_texts(TEXTS, seed=SEED)
        found = check_fidelity(description, engine, reference, texts, seed=SEED).comparison
    finally:
        exact.close()
    return Proof(found.worst_cosine, found.count)


def _exact_plan(description: ModelDescription, engine: Engine) -> EnginePlan:
    """fp32 where it is at hand: on the processor that of the default engine, which prepares quickly."""
    device = engine.info.device
    runs_anywhere = ENGINES[DEFAULT_ENGINE].is_installed and not isinstance(
        description.encoder, LibraryConfig
    )
    if device == "cpu" and runs_anywhere:
        return EnginePlan(DEFAULT_ENGINE, Precision.FP32, device)
    return EnginePlan(engine.info.name, Precision.FP32, device)


def _file_name(description: ModelDescription, plan: EnginePlan) -> str:
    device = (plan.device or "any").replace(":", "-")
    where = f"{plan.engine}-{plan.precision}-{device}-{processor_name()}"
    return f"{fingerprint_model(description)}-{where}.proof.json"
