"""`vecmill check`: find a model, load it and its reference, compare."""

from collections.abc import Sequence
from pathlib import Path

from vecmill.config import default_cache_dir
from vecmill.cores import available_cores
from vecmill.engines import load_engine
from vecmill.fidelity.check import FidelityReport, check_fidelity
from vecmill.fidelity.reference import load_reference
from vecmill.fidelity.sample import sample_texts
from vecmill.models import describe_model, locate_model


def compare_model(
    model: str | None,
    *,
    engine_name: str = "onnx",
    texts: Sequence[str] | None = None,
    count: int = 300,
    cache_dir: Path | None = None,
) -> FidelityReport:
    """Compare the rows of `model` with its reference, over `texts` or `count` of our own.

    Raises `SetupError`.
    """
    description = describe_model(locate_model(model))
    cache_dir = cache_dir or default_cache_dir()
    engine = load_engine(engine_name, description, cores=available_cores(), cache_dir=cache_dir)
    try:
        reference = load_reference(description, cache_dir)
        return check_fidelity(description, engine, reference, texts or sample_texts(count))
    finally:
        engine.close()
