"""The choice of a plan when a mill loads a model, from the manifest of the directory and the config."""

import logging
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from vecmill.config import MillConfig, default_cache_dir
from vecmill.engines import default_engine
from vecmill.errors import UnsupportedModel
from vecmill.models import ModelDescription, fingerprint_model
from vecmill.models.fingerprint import list_weights
from vecmill.models.weights import check_whole
from vecmill.serving_plan.manifest import PREPARED_FOLDER, Machine, Manifest, runtime_versions
from vecmill.serving_plan.plans import Accuracy
from vecmill.values.engine_plan import DEFAULT_ENGINE, EnginePlan

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """The plan by which a model is loaded, and the accuracy of the plan if it was measured.

    `measured_model` is the fingerprint of the model that was optimised.
    """

    plan: EnginePlan
    cache_dir: Path
    accuracy: Accuracy | None = None
    measured_model: str | None = None


def plan_model(description: ModelDescription, config: MillConfig) -> ServedPlan:
    """Return the plan by which this model is loaded. Raises the same errors as `plan_serving`."""
    check_whole(list_weights(description))  # before gigabytes of a damaged file are hashed
    engine = config.engine or default_engine(description)
    served = plan_serving(description.directory, config, engine=engine)
    if served.measured_model is None:
        return served  # without reading the weights
    if served.measured_model == fingerprint_model(description, served.cache_dir):
        return served
    logger.warning(
        "The files of %s have changed since it was optimised, so the measured accuracy is not reported.",
        description.directory,
    )
    return replace(served, accuracy=None)


def plan_serving(directory: Path, config: MillConfig, *, engine: str = DEFAULT_ENGINE) -> ServedPlan:
    """Return the plan by which the model in `directory` is loaded.

    Without a manifest, the plan uses `engine`.

    Logs a warning if the model was optimised on another machine, or by a release whose manifest this release
    does not read; such a manifest is ignored. Raises `CorruptModel` for a broken manifest.
    """
    cache_dir = config.cache_dir or default_cache_dir()
    manifest = _read_manifest(directory)
    if manifest is None:
        return ServedPlan(config.plan(engine), cache_dir)
    plan = apply_config(manifest.plan, config)
    is_same_machine = manifest.machine_fingerprint == Machine.current().fingerprint
    if not is_same_machine:
        logger.warning(
            "%s was optimised on another kind of machine and is served with the best plan of that machine. "
            "To find the best plan for this machine: vecmill optimize %s -o NEW_DIRECTORY",
            directory,
            shlex.quote(str(directory)),
        )
    prepared = directory / PREPARED_FOLDER
    # Prepared files are valid for one type of processor and one release of a runtime.
    fits = is_same_machine and runtime_versions([plan.engine]).items() <= dict(manifest.versions).items()
    if fits and plan == manifest.plan and prepared.is_dir():
        cache_dir = prepared
    return ServedPlan(plan, cache_dir, manifest.accuracy_of(plan), manifest.model_fingerprint)


def _read_manifest(directory: Path) -> Manifest | None:
    try:
        return Manifest.read(directory)
    except UnsupportedModel as error:
        logger.warning("%s Until then the model is served as if it had not been optimised.", error.message)
        return None


def apply_config(found: EnginePlan, config: MillConfig) -> EnginePlan:
    """Return the plan `found` by `vecmill optimize`, with its settings overridden by `config`.

    If `config` sets another engine, nothing of the found plan is kept. If it sets another precision or
    device, the settings that were measured for the found kind of plan are dropped.
    """
    asked = config.plan()
    if config.engine not in (None, found.engine):
        return asked
    precision = asked.precision or found.precision
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
