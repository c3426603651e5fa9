"""Reads cross-encoders, which score a query and a document together, and the labels of all classifiers.

Sources of the rules: sentence-transformers 6.2 (`cross_encoder/model.py`,
`cross_encoder/modules/logit_score.py`; for chat templates `base/modules/transformer.py`, `base/modality.py`),
transformers 5.23 (`configuration_utils.py`, `pipelines/text_classification.py`,
`pipelines/token_classification.py`, `tokenization_utils_base.py`).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.directory_layouts.modules import MODULES_FILE, ModelSettings, Module, StageReader, name_kinds
from vecmill.directory_layouts.transformer_files import join
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_LABELS,
    check_text,
    check_whole_number,
    read_choice,
    read_flag,
    read_mapping,
    read_text,
)
from vecmill.models.description import ModelDescription
from vecmill.models.directory import MAX_TEMPLATE_BYTES, find_file, read_object, require_object
from vecmill.models.directory import read_text as read_text_file
from vecmill.models.heads import Activation, ChatTemplate, Head, HeadKind
from vecmill.models.location import ModelLocation
from vecmill.values.messages import not_supported
from vecmill.values.task import Task

_DEFAULT_LABELS = 2

_ACTIVATION_OF_PROBLEM = {
    "regression": Activation.IDENTITY,
    "multi_label_classification": Activation.SIGMOID,
    "single_label_classification": Activation.SOFTMAX,
}


def read_labels(config: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Read the names of the logits, in order. Raises `CorruptModel` if they are not numbered from 0."""
    names = None if config.get("id2label") is None else read_mapping(config, "id2label", file=path)
    count = config.get("num_labels")
    if count is not None:
        count = check_whole_number(count, f"{path}: num_labels", most=MOST_LABELS)
    if names is None or count not in (None, len(names)):
        return tuple(f"LABEL_{index}" for index in range(count or _DEFAULT_LABELS))
    try:
        named = {int(key): _label(value, f"{path}: id2label.{key}") for key, value in names.items()}
    except ValueError as error:
        raise CorruptModel(f"{path}: id2label must name labels by number.") from error
    if not named or set(named) != set(range(len(named))):
        raise CorruptModel(f"{path}: id2label must number its labels from 0 without gaps.")
    return tuple(named[index] for index in range(len(named)))


def _label(value: object, name: str) -> str:
    """Return the name of a label, which may be written as a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else check_text(value, name)


def classification_activation(config: Mapping[str, Any], labels: tuple[str, ...]) -> Activation:
    """Return the activation of the text classification pipeline. Raises `UnsupportedModel`."""
    problem = read_choice(config, "problem_type", _ACTIVATION_OF_PROBLEM)
    if problem == "regression":
        return Activation.IDENTITY
    if len(labels) == 1:
        return Activation.SIGMOID
    return Activation.SOFTMAX if problem is None else _ACTIVATION_OF_PROBLEM[problem]


_TEMPLATE_FILE = "chat_template.jinja"
_SPECIAL = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))

# Patterns in templates whose messages have a list of parts as content instead of a text.
_PARTS = ("content[0]", ".type", "'type'", '"type"', "item.type", "message.content[")
# Architectures whose messages have a text as content, whatever the patterns find.
_TEXT_ARCHITECTURES = frozenset({"apertus", "deepseek_v3", "gpt_oss", "seed_oss"})

# Arguments of transformers' rendering function, which are not variables of a template.
_ARGUMENTS = frozenset(
    {"padding", "truncation", "max_length", "pad_to_multiple_of", "return_tensors", "tokenize", "return_dict"}
)


def read_chat_template(folder: TransformerFolder) -> ChatTemplate | None:
    """Read the chat template for pairs; `None` if sentence-transformers uses none for this model.

    Raises `UnsupportedModel` for named templates and unsupported arguments, `CorruptModel` if the template is
    missing.
    """
    modalities = read_mapping(folder.settings, "modality_config", file=folder.settings_path)
    if "message" not in modalities:
        return None
    return _read_template(folder, modalities["message"].get("format", "auto"))


def read_plain_template(folder: TransformerFolder) -> ChatTemplate | None:
    """Read the chat template of a directory without modules, which `CrossEncoder` uses if there is one.

    Raises `UnsupportedModel` for named templates, and for a `chat_template.json`.
    """
    if find_file(folder.directory, join(folder.folder, "chat_template.json")) is not None:
        folder.refuse_chat_template()
    has_file = find_file(folder.directory, join(folder.folder, _TEMPLATE_FILE)) is not None
    if not has_file and not folder.tokenizer_config.get("chat_template"):
        return None
    return _read_template(folder, "auto")


def _read_template(folder: TransformerFolder, message_format: object) -> ChatTemplate:
    file, source = _find_source(folder)
    in_parts = _expects_parts(folder, source) if message_format == "auto" else message_format == "structured"
    return ChatTemplate(
        file=folder.path(file),
        source=source,
        in_parts=in_parts,
        special_tokens=_read_special_tokens(folder),
        variables=_read_variables(folder),
    )


def _find_source(folder: TransformerFolder) -> tuple[str, str]:
    place = folder.tokenizer
    path = find_file(place.directory, join(place.folder, _TEMPLATE_FILE))
    if path is not None:
        return _TEMPLATE_FILE, read_text_file(path, MAX_TEMPLATE_BYTES)
    source = folder.tokenizer_config.get("chat_template")
    if source is None:
        raise CorruptModel(f"{folder.path(_TEMPLATE_FILE)} is missing. Download the model again.")
    if not isinstance(source, str):
        raise UnsupportedModel(
            f"{folder.path('tokenizer_config.json')}: several chat templates are not supported; one is."
        )
    return "tokenizer_config.json", source


def _expects_parts(folder: TransformerFolder, source: str) -> bool:
    if folder.config.get("model_type") in _TEXT_ARCHITECTURES:
        return False
    return any(pattern in source for pattern in _PARTS)


def _read_special_tokens(folder: TransformerFolder) -> tuple[tuple[str, str | None], ...]:
    """Read the special tokens that the files name, null included; templates may use no others."""
    place = folder.tokenizer
    others = read_object(place.directory, join(place.folder, "special_tokens_map.json")) or {}
    return tuple(
        (name, folder.special_token(name))
        for name in _SPECIAL
        if name in folder.tokenizer_config or name in others
    )


def _read_variables(folder: TransformerFolder) -> tuple[tuple[str, Any], ...]:
    path = folder.settings_path
    arguments = read_mapping(folder.settings, "processing_kwargs", file=path)
    if set(arguments) - {"chat_template"}:
        raise UnsupportedModel(f"{path}: processing_kwargs is supported for chat_template alone.")
    name = f"{path}: processing_kwargs"
    variables = dict(read_mapping(arguments, "chat_template", file=name))
    restores = read_flag(variables, "restore_suffix", default=True, file=f"{name}.chat_template")
    variables.pop("restore_suffix", None)
    if not restores:
        raise UnsupportedModel(
            f"{path}: processing_kwargs.chat_template.restore_suffix false is not supported."
        )
    for name, value in variables.items():
        if name in _ARGUMENTS or not isinstance(value, str | int | float | bool | None):
            raise UnsupportedModel(f"{path}: processing_kwargs.chat_template.{name} is not supported.")
    return tuple(sorted(variables.items()))


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
    reader = StageReader.after(location.directory, folder.encoder, last_output="scores")
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
        supported = [f"torch's {activation}" for activation in _ACTIVATIONS]
        raise UnsupportedModel(not_supported(f"{folder.path('config.json')}: activation_fn", name, supported))
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
