"""Cross-encoders: a query and a document go through one model together, and a score comes out.

Source of the rules: sentence-transformers 6.2, `cross_encoder/model.py` and
`cross_encoder/modules/logit_score.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.description import ModelDescription, Task
from vecmill.models.directory import require_object
from vecmill.models.heads import Activation, Head, HeadKind
from vecmill.models.layouts.classifier import classification_activation, read_labels
from vecmill.models.layouts.modules import MODULES_FILE, Module, name_kinds
from vecmill.models.layouts.settings import ModelSettings
from vecmill.models.layouts.transformer_folder import TransformerFolder, join
from vecmill.models.location import ModelLocation

_ACTIVATIONS = {"Sigmoid": Activation.SIGMOID, "Identity": Activation.IDENTITY}


def describe_cross_encoder(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `CrossEncoder` modules: a classifier, or a causal language model that says yes or no."""
    kinds = [module.kind for module in modules]
    if kinds not in (["Transformer"], ["Transformer", "LogitScore"]):
        raise UnsupportedModel(
            f"{location.directory / MODULES_FILE} lists {name_kinds(modules)}; supported in a "
            "cross-encoder are "
            "Transformer alone, or followed by LogitScore."
        )
    folder = TransformerFolder.read(location.directory, modules[0].folder)
    if len(modules) == 1:
        folder.expect_task("sequence-classification")
        description = describe_pair_classifier(location, folder, settings.values)
    else:
        folder.expect_task("text-generation")
        description = _describe_yes_no(location, folder, modules[1], settings.values)
    return settings.add_prompts(description)


def describe_pair_classifier(
    location: ModelLocation, folder: TransformerFolder, values: Mapping[str, Any]
) -> ModelDescription:
    """A reranker where the model has one label, else a classifier.

    `values` are those of `config_sentence_transformers.json`, which may name the activation.
    """
    labels = read_labels(folder.config, folder.path("config.json"))
    is_reranker = len(labels) == 1
    activation = (
        read_score_activation(folder, values)
        if is_reranker
        else classification_activation(folder.config, labels)
    )
    return replace(
        folder.describe(location),
        task=Task.RERANK if is_reranker else Task.CLASSIFY,
        head=Head(HeadKind.SEQUENCE, labels, activation),
        dim=len(labels),
    )


def read_score_activation(folder: TransformerFolder, values: Mapping[str, Any]) -> Activation:
    """What makes a score of one logit. Raises `UnsupportedModel` for what torch has and we have not."""
    older = folder.config.get("sentence_transformers") or {}
    written = values.get("activation_fn") or (
        older["activation_fn"]
        if isinstance(older, dict) and "activation_fn" in older
        else folder.config.get("sbert_ce_default_activation_function")
    )
    # The reference runs nobody else's activation either, and takes its own.
    if not isinstance(written, str) or not written.startswith("torch."):
        return Activation.SIGMOID
    kind = written.rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"{folder.path('config.json')}: activation_fn {written!r} is not supported; supported are "
            "torch's "
            f"{' and '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[kind]


def _describe_yes_no(
    location: ModelLocation, folder: TransformerFolder, module: Module, values: Mapping[str, Any]
) -> ModelDescription:
    name = join(module.folder, "config.json")
    config = require_object(location.directory, name)
    if config.get("module_input_name", "causal_logits") != "causal_logits":
        raise UnsupportedModel(
            f"{location.directory / name}: module_input_name {config['module_input_name']!r} is not "
            "supported."
        )
    written = (config.get("true_token_id"), config.get("false_token_id"))
    token_ids = tuple(value for value in written if value is not None)
    if written[0] is None or not all(
        type(value) is int and 0 <= value < folder.encoder.vocab_size for value in token_ids
    ):
        raise CorruptModel(
            f"{location.directory / name}: true_token_id and false_token_id must be tokens of the model."
        )
    activation = read_score_activation(folder, values)
    return replace(
        folder.describe(location),
        task=Task.RERANK,
        head=Head(HeadKind.YES_NO, activation=activation, token_ids=token_ids),
        dim=1,
    )
