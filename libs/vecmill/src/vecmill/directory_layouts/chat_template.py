"""Reads the chat template of a reranker, and the tokens and variables that it uses.

Sources of the rules: sentence-transformers 6.2 (`base/modules/transformer.py`, `base/modality.py`),
transformers 5.23 (`tokenization_utils_base.py`).
"""

from typing import Any

from vecmill.directory_layouts.transformer_folder import TransformerFolder, join
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_flag, read_mapping
from vecmill.models.directory import MAX_TEMPLATE_BYTES, find_file, read_object, read_text
from vecmill.models.heads import ChatTemplate

_FILE = "chat_template.jinja"
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
    file, source = _find_source(folder)
    message_format = modalities["message"].get("format", "auto")
    in_parts = _expects_parts(folder, source) if message_format == "auto" else message_format == "structured"
    return ChatTemplate(
        file=folder.path(file),
        source=source,
        in_parts=in_parts,
        special_tokens=_read_special_tokens(folder),
        variables=_read_variables(folder),
    )


def _find_source(folder: TransformerFolder) -> tuple[str, str]:
    path = find_file(folder.directory, join(folder.folder, _FILE))
    if path is not None:
        return _FILE, read_text(path, MAX_TEMPLATE_BYTES)
    source = folder.tokenizer_config.get("chat_template")
    if source is None:
        raise CorruptModel(f"{folder.path(_FILE)} is missing. Download the model again.")
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
    others = read_object(folder.directory, join(folder.folder, "special_tokens_map.json")) or {}
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
