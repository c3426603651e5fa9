"""What a mill makes of an optimised model directory: the plan that was found, unless told otherwise."""

import logging
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from vecmill.config import MillConfig, default_cache_dir
from vecmill.engines import default_engine
from vecmill.models import ModelDescription, fingerprint_model
from vecmill.plan import DEFAULT_ENGINE, EnginePlan
from vecmill.tuning.figures import Accuracy
from vecmill.tuning.machine import Machine, runtime_versions
from vecmill.tuning.manifest import PREPARED_FOLDER, Manifest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """How to load a model. `accuracy` is what was measured for it, if it was.

    `measured_model` is the fingerprint of the model that was optimised.
    """

    plan: EnginePlan
    cache_dir: Path
    accuracy: Accuracy | None = None
    measured_model: str | None = None


def plan_model(description: ModelDescription, config: MillConfig) -> ServedPlan:
    """How to load this model; raises as `plan_serving` does."""
    engine = config.engine or default_engine(description)
    served = plan_serving(description.directory, config, engine=engine)
    if served.measured_model in (None, fingerprint_model(description)):
        return served
    logger.warning(
        "The files of %s have changed since it was optimised: what was measured then is not said of it.",
        description.directory,
    )
    return replace(served, accuracy=None)


def plan_serving(directory: Path, config: MillConfig, *, engine: str = DEFAULT_ENGINE) -> ServedPlan:
    """How to load the model in `directory`, on `engine` where its manifest says nothing.

    Warns where it was optimised on another machine. Raises `CorruptModel` or `UnsupportedModel` for a
    manifest that cannot be read.
    """
    cache_dir = config.cache_dir or default_cache_dir()
    manifest = Manifest.read(directory)
    if manifest is None:
        return ServedPlan(config.plan(engine), cache_dir)
    plan = follow(manifest.plan, config)
    is_same_machine = manifest.machine_fingerprint == Machine.here().fingerprint
    if not is_same_machine:
        logger.warning(
            "%s was optimised on another kind of machine: it is served with the plan that was best there. "
            "To find the best one here: vecmill optimize %s -o NEW_DIRECTORY",
            directory,
            shlex.quote(str(directory)),
        )
    prepared = directory / PREPARED_FOLDER
    # Prepared files fit one type of processor and one release of a runtime.
    fits = is_same_machine and runtime_versions([plan.engine]).items() <= dict(manifest.versions).items()
    if fits and plan == manifest.plan and prepared.is_dir():
        cache_dir = prepared
    return ServedPlan(plan, cache_dir, manifest.accuracy_of(plan), manifest.model_fingerprint)


def follow(found: EnginePlan, config: MillConfig) -> EnginePlan:
    """The plan that was found, with what `config` says instead.

    Another engine, device or precision is another plan: of what was found for the old one, only what is about
    the engine stays with a new precision, and nothing with a new engine.
    """
    asked = config.plan()
    if config.engine not in (None, found.engine):
        return asked
    precision = config.precision or found.precision
    device = config.device or found.device
    is_same = (precision, device) == (found.precision, found.device)
    return replace(
        found,
        precision=precision,
        device=device,
        lane_widths=found.lane_widths if is_same else (),
        length_multiple=found.length_multiple if is_same else None,
        max_batch_tokens=asked.max_batch_tokens or (found.max_batch_tokens if is_same else None),
    )
