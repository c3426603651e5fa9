"""The references of a check: the model's own library if it is installed, else vecmill's fp32 ONNX engine."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from vecmill.engines import load_engine
from vecmill.errors import UnsupportedModel
from vecmill.models import ModelDescription
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.check_inputs import CheckInputs, make_check_inputs
from vecmill.verification.model_outputs import ModelOutputs, ModelProcessor, compute_singly
from vecmill.verification.reference_implementations import (
    ComputeOutputs,
    load_reference_implementation,
    reference_library,
)


class Reference(Protocol):
    """A source of reference outputs."""

    @property
    def name(self) -> str:
        """The name for reports."""
        ...

    def outputs_for(self, inputs: CheckInputs) -> ModelOutputs:
        """Return the outputs for `inputs`, in order."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedReference:
    """A reference with its model in memory. Satisfies `Reference`."""

    name: str
    compute: ComputeOutputs

    def outputs_for(self, inputs: CheckInputs) -> ModelOutputs:
        """Compute the outputs for `inputs`, in order."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own code
            return self.compute(inputs)


@dataclass(frozen=True, slots=True)
class StoredReference:
    """The stored outputs of a reference, for several checks over the same texts. Satisfies `Reference`."""

    name: str
    inputs: CheckInputs
    outputs: ModelOutputs

    def outputs_for(self, inputs: CheckInputs) -> ModelOutputs:
        """Return the stored outputs. Raises `ValueError` if `inputs` are not the stored inputs."""
        if inputs != self.inputs:
            raise ValueError("the stored outputs belong to other inputs")
        return self.outputs


def store_outputs(
    reference: Reference, description: ModelDescription, texts: Sequence[str]
) -> StoredReference:
    """Compute and store the outputs of `reference` for a check of the model with `texts`."""
    inputs = make_check_inputs(description, texts)
    return StoredReference(reference.name, inputs, reference.outputs_for(inputs))


def load_reference(description: ModelDescription, cache_dir: Path) -> LoadedReference:
    """Load the best reference that is installed for a model. Blocks while the reference loads.

    Raises `UnsupportedModel` if the model's own library is installed but cannot load the model.
    """
    library = reference_library(description)
    if find_spec(library) is None:
        return _load_own(description, cache_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own code
        name = f"{library.replace('_', '-')} {version(library)}"
        try:
            return LoadedReference(name, load_reference_implementation(description))
        except Exception as error:
            raise UnsupportedModel(
                f"The reference, {name}, cannot load {description.directory}: {error}"
            ) from error


def _load_own(description: ModelDescription, cache_dir: Path) -> LoadedReference:
    engine = load_engine(description, EnginePlan(precision=Precision.FP32), cores=1, cache_dir=cache_dir)
    processor = ModelProcessor.load(description)
    return LoadedReference(
        "vecmill's own fp32 ONNX engine, each text alone",
        lambda inputs: compute_singly(engine, processor, inputs),
    )
