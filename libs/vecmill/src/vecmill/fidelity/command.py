"""`vecmill check`: find a model, load it and its reference, compare."""

from collections.abc import Sequence
from pathlib import Path

from vecmill.config import default_cache_dir
from vecmill.cores import available_cores
from vecmill.engines import load_engine
from vecmill.errors import InvalidConfig
from vecmill.fidelity.check import FidelityReport, check_fidelity
from vecmill.fidelity.reference import load_reference
from vecmill.fidelity.sample import sample_texts
from vecmill.models import Task, describe_model, locate_model
from vecmill.plan import EnginePlan


def compare_model(
    model: str | None,
    *,
    task: str | None = None,
    plan: EnginePlan | None = None,
    texts: Sequence[str] | None = None,
    count: int = 300,
    cache_dir: Path | None = None,
) -> FidelityReport:
    """Compare the answers of `model` with its reference's, over `texts` or `count` of our own.

    `task` is what the model is for, where its directory says something else. Raises `SetupError`.
    """
    if task not in (None, *Task):
        raise InvalidConfig(f"--task {task!r}: the task must be one of {', '.join(Task)}.")
    description = describe_model(locate_model(model), None if task is None else Task(task))
    cache_dir = cache_dir or default_cache_dir()
    engine = load_engine(description, plan or EnginePlan(), cores=available_cores(), cache_dir=cache_dir)
    try:
        reference = load_reference(description, cache_dir)
        return check_fidelity(description, engine, reference, texts or sample_texts(count))
    finally:
        engine.close()
