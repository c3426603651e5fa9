"""`vecmill check`: find a model, load it and its reference, compare."""

from collections.abc import Sequence

from vecmill.config import MillConfig, default_cache_dir
from vecmill.cores import available_cores
from vecmill.engines import load_engine
from vecmill.errors import InvalidConfig
from vecmill.fidelity.check import FidelityReport, check_fidelity
from vecmill.fidelity.reference import load_reference
from vecmill.fidelity.sample import sample_texts
from vecmill.models import Task, describe_model, locate_model
from vecmill.tuning.serving import plan_model


def compare_model(
    model: str | None,
    config: MillConfig,
    *,
    task: str | None = None,
    trusts_code: bool = False,
    texts: Sequence[str] | None = None,
    count: int = 300,
) -> FidelityReport:
    """Compare the answers that a mill with `config` would give with the reference's, over `texts` or our own.

    There are `count` of our own. `task` is what the model is for, where its directory says something else;
    with `trusts_code` its own code may be run. Raises `SetupError`.
    """
    if task not in (None, *Task):
        raise InvalidConfig(f"--task {task!r}: the task must be one of {', '.join(Task)}.")
    location = locate_model(model, trusts_code=trusts_code)
    description = describe_model(location, None if task is None else Task(task))
    served = plan_model(description, config)
    engine = load_engine(
        description, served.plan, cores=config.cores or available_cores(), cache_dir=served.cache_dir
    )
    try:
        reference = load_reference(description, config.cache_dir or default_cache_dir())
        return check_fidelity(description, engine, reference, texts or sample_texts(count))
    finally:
        engine.close()
