"""The chat template of a reranker: which one it is, and what it is told.

Sources of the rules: sentence-transformers 6.2 (`base/modules/transformer.py`, `base/modality.py`),
transformers 5.23 (`tokenization_utils_base.py`).
"""

from collections.abc import Mapping
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.directory import find_file, read_object
from vecmill.models.heads import ChatTemplate
from vecmill.models.layouts.transformer_folder import TransformerFolder, join

_FILE = "chat_template.jinja"
_SPECIAL = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))

# What shows that a template expects the parts of a message, and not its text.
_PARTS = ("content[0]", ".type", "'type'", '"type"', "item.type", "message.content[")
_TEXTS_OF_TYPES = frozenset(
    {"apertus", "deepseek_v3", "gpt_oss", "seed_oss"}
)  # whatever their templates show

# Arguments of the call that renders, and no variables of a template.
_ARGUMENTS = frozenset(
    {"padding", "truncation", "max_length", "pad_to_multiple_of", "return_tensors", "tokenize", "return_dict"}
)


def read_chat_template(folder: TransformerFolder) -> ChatTemplate | None:
    """What is put around a pair; `None` where the reference reads pairs without a template.

    Raises `UnsupportedModel` for named templates and for arguments that are not done here, `CorruptModel`
    where the template is missing.
    """
    modalities = folder.settings.get("modality_config") or {}
    if "message" not in modalities:
        return None
    file, source = _find_source(folder)
    written = modalities["message"].get("format", "auto")
    in_parts = written == "structured" if written != "auto" else _expects_parts(folder, source)
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
        try:
            return _FILE, path.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise CorruptModel(f"{path} cannot be read: {error}. Download the model again.") from error
    written = folder.tokenizer_config.get("chat_template")
    if written is None:
        raise CorruptModel(f"{folder.path(_FILE)} is missing. Download the model again.")
    if not isinstance(written, str):
        raise UnsupportedModel(
            f"{folder.path('tokenizer_config.json')}: several chat templates are not supported; one is."
        )
    return "tokenizer_config.json", written


def _expects_parts(folder: TransformerFolder, source: str) -> bool:
    if folder.config.get("model_type") in _TEXTS_OF_TYPES:
        return False
    return any(pattern in source for pattern in _PARTS)


def _read_special_tokens(folder: TransformerFolder) -> tuple[tuple[str, str | None], ...]:
    """Those that are written, a null too: a template that asks for another one is unclear."""
    others = read_object(folder.directory, join(folder.folder, "special_tokens_map.json")) or {}
    return tuple(
        (name, folder.special_token(name))
        for name in _SPECIAL
        if name in folder.tokenizer_config or name in others
    )


def _read_variables(folder: TransformerFolder) -> tuple[tuple[str, Any], ...]:
    where = folder.path("sentence_bert_config.json")
    written: Mapping[str, Any] = folder.settings.get("processing_kwargs") or {}
    if set(written) - {"chat_template"}:
        raise UnsupportedModel(f"{where}: processing_kwargs is supported for chat_template alone.")
    variables = dict(written.get("chat_template") or {})
    if not variables.pop("restore_suffix", True):
        raise UnsupportedModel(
            f"{where}: processing_kwargs.chat_template.restore_suffix false is not supported."
        )
    for name, value in variables.items():
        if name in _ARGUMENTS or not isinstance(value, str | int | float | bool | None):
            raise UnsupportedModel(f"{where}: processing_kwargs.chat_template.{name} is not supported.")
    return tuple(sorted(variables.items()))
