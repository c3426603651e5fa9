"""What becomes of a model when it is served: the same checks as at the start, without the weights.

The checks are those of `Mill.start`, in its order, up to the first that computes: the description of the
directory, the plan, the engine's packages, the graph with the names and shapes of its tensors, the tokenizer.
So a model that is refused here is refused at the start, with the same sentence.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import find_engine
from vecmill.errors import SetupError
from vecmill.models import ModelDescription
from vecmill.models.directory import load_failures
from vecmill.models.encoder_config import TransformersConfig
from vecmill.models.fingerprint import stage_files
from vecmill.models.outline import ModelOutline
from vecmill.serving_plan.choice_at_load import plan_model
from vecmill.tokenization.input_readers import make_readers
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.engine_plan import EnginePlan


class OutcomeKind(StrEnum):
    """What becomes of a model."""

    GRAPH = "graph"  # vecmill's own graph computes it
    EXPORTED_GRAPH = "exported graph"  # a graph from its directory computes it
    TRANSFORMERS = "transformers"  # the torch engine computes it with a class of transformers
    OWN_CODE = "own code"  # the torch engine computes it with the code in its directory
    REFUSED = "refused"
    UNKNOWN = "unknown"  # known when the weights are there


@dataclass(frozen=True, slots=True)
class ForeseenOutcome:
    """What becomes of a model.

    `reason` is the sentence of the refusal, or what is missing to know. `unchecked` are checks of the start
    that need more than is known of the model. With `asks_trust` the model was refused for its own code, and
    is described once the operator trusts it. `description` and `plan` are `None` if a check before them
    failed.
    """

    kind: OutcomeKind
    description: ModelDescription | None = None
    plan: EnginePlan | None = None
    reason: str | None = None
    unchecked: tuple[str, ...] = ()
    asks_trust: bool = False

    @property
    def is_served(self) -> bool:
        """Whether no check refuses the model."""
        return self.kind not in (OutcomeKind.REFUSED, OutcomeKind.UNKNOWN)


def foresee_outcome(outline: ModelOutline, config: MillConfig) -> ForeseenOutcome:
    """Run the checks of a start with `config` that need no values of tensors."""
    found = ForeseenOutcome(OutcomeKind.UNKNOWN)
    try:
        description = describe_model(outline.location)
        found = replace(found, description=description)
        found = replace(found, plan=plan_model(description, config).plan)
    except SetupError as error:
        if any(str(path) in error.message for path in outline.unread):
            return replace(found, reason="It is known when the weights are there.")
        return _refuse(found, outline, error)
    assert found.plan is not None
    try:
        find_engine(found.plan.engine)
        with load_failures(description.directory):
            unchecked = _check_sides(description, outline.unread)
    except SetupError as error:
        return _refuse(found, outline, error)
    return replace(found, kind=_kind_of(description), unchecked=unchecked)


def _refuse(found: ForeseenOutcome, outline: ModelOutline, error: SetupError) -> ForeseenOutcome:
    asks_trust = False
    if found.description is None and not outline.location.trusts_code:
        with suppress(SetupError):
            asks_trust = describe_model(replace(outline.location, trusts_code=True)).runs_code
    reason = outline.name_directory(error.message)
    return replace(found, kind=OutcomeKind.REFUSED, reason=reason, asks_trust=asks_trust)


def _kind_of(description: ModelDescription) -> OutcomeKind:
    if description.exported_graph is not None:
        return OutcomeKind.EXPORTED_GRAPH
    if description.runs_code:
        return OutcomeKind.OWN_CODE
    is_foreign = isinstance(description.encoder, TransformersConfig)
    return OutcomeKind.TRANSFORMERS if is_foreign else OutcomeKind.GRAPH


def list_weights(description: ModelDescription) -> tuple[Path, ...]:
    """Return all files of a model that hold tensors: of the encoder, of the stages and of token heads.

    Those of an asymmetric model include the files of its queries.
    """
    heads = () if description.token_heads is None else description.token_heads.files
    _, *others = description.sides
    of_others = (path for side in others for path in list_weights(side))
    # The encoders of texts and of pictures are often in one file.
    return (*dict.fromkeys((*description.weights_files, *stage_files(description), *heads, *of_others)),)


def _check_sides(description: ModelDescription, unread: frozenset[Path]) -> tuple[str, ...]:
    """Check what the engine will compute, and the tokenizers. Return the checks that need more than is known.

    Raises the errors of the engine.
    """
    unchecked = [check for side in description.sides for check in _check_computation(side, unread)]
    for side in description.text_sides:
        make_readers(side, Tokenizer.load(side))
    return tuple(dict.fromkeys(unchecked))


def _check_computation(description: ModelDescription, unread: frozenset[Path]) -> tuple[str, ...]:
    """Check what the engine will compute. Return the checks that need more than is known.

    Raises the errors of the engine.
    """
    check, needs_weights = _choose_check(description)
    if needs_weights and not unread.isdisjoint(list_weights(description)):
        return ("the names and shapes of the tensors",)
    check(description)
    if _kind_of(description) in (OutcomeKind.TRANSFORMERS, OutcomeKind.OWN_CODE):
        return ("whether the class of the model loads these weights",)
    return ()


def _choose_check(description: ModelDescription) -> tuple[Callable[[ModelDescription], object], bool]:
    """Return the check of what computes a model, and whether the check reads files with weights.

    Each check is imported when it is needed: the graphs, and torch.
    """
    if description.exported_graph is not None:
        from vecmill.graphs.exported import read_exported

        return read_exported, True
    if isinstance(description.encoder, TransformersConfig):
        from vecmill.engines.torch.transformers_model import check_transformers_model

        return check_transformers_model, False
    if not description.encoder.has_config:  # a static table, which was checked with its description
        return lambda _: None, False
    from vecmill.architectures.build import build_graph

    return build_graph, True
