"""Reads cross-encoders, which score a query and a document together.

Source of the rules: sentence-transformers 6.2, `cross_encoder/model.py` and
`cross_encoder/modules/logit_score.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vecmill.directory_layouts.chat_template import read_chat_template
from vecmill.directory_layouts.classifier import classification_activation, read_labels
from vecmill.directory_layouts.modules import MODULES_FILE, Module, StageReader, name_kinds
from vecmill.directory_layouts.sentence_transformers_config import ModelSettings
from vecmill.directory_layouts.transformer_folder import TransformerFolder, join
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_choice, read_mapping, read_text
from vecmill.models.description import ModelDescription
from vecmill.models.directory import require_object
from vecmill.models.heads import Activation, Head, HeadKind
from vecmill.models.location import ModelLocation
from vecmill.values.messages import show
from vecmill.values.task import Task

_ACTIVATIONS = {
    "Sigmoid": Activation.SIGMOID,
    "Identity": Activation.IDENTITY,
    "Softmax": Activation.SOFTMAX,
}


def describe_cross_encoder(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `CrossEncoder` modules: a classifier, a yes-no language model, or an encoder with stages."""
    first, *rest = [module.kind for module in modules]
    if first != "Transformer" or not (rest in ([], ["LogitScore"]) or rest[-1] == "Dense"):
        raise UnsupportedModel(
            f"{location.directory / MODULES_FILE} lists {name_kinds(modules)}; supported in a cross-encoder "
            "are Transformer alone, or followed by LogitScore, or by Pooling and a final Dense."
        )
    folder = TransformerFolder.read(location, modules[0].folder, reads_chat_template=True)
    if not rest:
        folder.expect_task("sequence-classification")
        description = describe_pair_classifier(location, folder, settings.values)
    elif rest == ["LogitScore"]:
        folder.expect_task("text-generation")
        description = _describe_yes_no(location, folder, modules[1], settings.values)
    else:
        folder.expect_task("feature-extraction")
        description = _describe_scoring_stages(location, folder, modules, settings.values)
    return settings.add_prompts(replace(description, chat_template=read_chat_template(folder)))


def _describe_scoring_stages(
    location: ModelLocation, folder: TransformerFolder, modules: tuple[Module, ...], values: Mapping[str, Any]
) -> ModelDescription:
    """Describe an embedding model whose last module computes logits."""
    reader = StageReader(location.directory, folder.encoder.hidden_size, last_output="scores")
    stages = reader.read(modules[1:])
    labels = tuple(f"LABEL_{index}" for index in range(reader.width))
    return replace(
        folder.describe(location),
        task=Task.RERANK if len(labels) == 1 else Task.CLASSIFY,
        head=Head(HeadKind.STAGES, labels, read_score_activation(folder, values, labels)),
        stages=stages,
        dim=reader.width,
    )


def describe_pair_classifier(
    location: ModelLocation, folder: TransformerFolder, values: Mapping[str, Any]
) -> ModelDescription:
    """Describe a reranker if the model has one label, else a classifier.

    `values` are the settings of `config_sentence_transformers.json`, which may name the activation.
    """
    labels = read_labels(folder.config, folder.path("config.json"))
    return replace(
        folder.describe(location),
        task=Task.RERANK if len(labels) == 1 else Task.CLASSIFY,
        head=Head(HeadKind.SEQUENCE, labels, read_score_activation(folder, values, labels)),
        dim=len(labels),
    )


def read_score_activation(
    folder: TransformerFolder, values: Mapping[str, Any], labels: tuple[str, ...] = ()
) -> Activation:
    """Read the activation of logits. Raises `UnsupportedModel` for other activations of torch.

    The default for one logit is a sigmoid. For several logits, sentence-transformers applies no activation
    and writes `Identity`. Here the activation of transformers' pipeline applies, and the logits remain
    available.
    """
    configured = _configured_activation(folder, values)
    if len(labels) > 1 and configured in (None, Activation.IDENTITY):
        return classification_activation(folder.config, labels)
    return Activation.SIGMOID if configured is None else configured


def _configured_activation(folder: TransformerFolder, values: Mapping[str, Any]) -> Activation | None:
    older = read_mapping(folder.config, "sentence_transformers")
    name = read_text(values, "activation_fn", file=ModelSettings.FILE) or (
        read_text(older, "activation_fn", file="config.json: sentence_transformers")
        if "activation_fn" in older
        else read_text(folder.config, "sbert_ce_default_activation_function")
    )
    # sentence-transformers also replaces activations outside torch by its default.
    if name is None or not name.startswith("torch."):
        return None
    kind = name.rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"{folder.path('config.json')}: activation_fn {show(name)} is not supported; supported are "
            f"torch's {', '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[kind]


def _describe_yes_no(
    location: ModelLocation, folder: TransformerFolder, module: Module, values: Mapping[str, Any]
) -> ModelDescription:
    name = join(module.folder, "config.json")
    config = require_object(location.directory, name)
    read_choice(config, "module_input_name", ("causal_logits",), file=location.directory / name)
    true_id, false_id = config.get("true_token_id"), config.get("false_token_id")
    token_ids = tuple(value for value in (true_id, false_id) if value is not None)
    if true_id is None or not all(
        type(value) is int and 0 <= value < folder.encoder.vocab_size for value in token_ids
    ):
        raise CorruptModel(
            f"{location.directory / name}: true_token_id and false_token_id must be token ids of the model, "
            "which are below vocab_size."
        )
    activation = read_score_activation(folder, values)
    return replace(
        folder.describe(location),
        task=Task.RERANK,
        head=Head(HeadKind.YES_NO, activation=activation, token_ids=token_ids),
        dim=1,
    )
