"""The embedded model, in the reference and in the engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.reference import load_reference
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.engine_plan import EnginePlan


@pytest.fixture(scope="session")
def description() -> ModelDescription:
    return describe_model(locate_model())


@pytest.fixture(scope="session")
def tokenizer(description: ModelDescription) -> Tokenizer:
    return Tokenizer.load(description)


@pytest.fixture(scope="session")
def reference(description: ModelDescription) -> Any:
    return load_reference(description.directory)


@pytest.fixture(scope="session")
def engine(description: ModelDescription, kept_models: Path) -> Iterator[OnnxEngine]:
    engine = OnnxEngine.load(description, EnginePlan(), cores=2, cache_dir=kept_models)
    yield engine
    engine.close()
