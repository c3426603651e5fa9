"""The special tokens of transformers' tokenizer classes, and what the classes put around texts.

Most classes put their own tokens around texts, with the names that tokenizer_config.json gives them, and
whatever tokenizer.json says of it. The other classes take what tokenizer.json says.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.directory import read_object

# Role -> token, in the order in which transformers adds them.
Special = Mapping[str, str]

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

# Tokenizer, special tokens, tokenizer_config.json -> a processor of the tokenizers library.
Frame = Callable[[Any, Special, Mapping[str, Any]], Any]


def read_written(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """tokenizer_config.json, and where that lists no added tokens what special_tokens_map.json overrules."""
    if "added_tokens_decoder" in config:
        return config
    return {**config, **(read_object(folder, "special_tokens_map.json") or {})}


def find_special_tokens(name: str, written: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens of the class called `name`: those of `written`, else its own.

    `written` is what `read_written` gives.
    """
    defaults = SPECIAL_TOKENS.get(name, {})
    return {
        role: content
        for role in ROLES
        if (content := token_content(written.get(f"{role}_token", defaults.get(role)))) is not None
    }


def token_content(written: Any) -> str | None:
    """The text of a token that is written as such or as an object."""
    content = written.get("content") if isinstance(written, Mapping) else written
    return content if isinstance(content, str) else None


def frame_texts(tokenizer: Any, name: str, config: Mapping[str, Any], path: Path) -> None:
    """Let the class called `name` put its own tokens around texts, if it is one of those that do.

    Changes `tokenizer`, which was read from `path`. Raises `CorruptModel` if its vocabulary lacks them.
    """
    frame = _FRAMES.get(name)
    if frame is None or (name in _FRAMED_BY_FILE and tokenizer.post_processor is not None):
        return
    special = find_special_tokens(name, read_written(path.parent, config))
    missing = sorted(
        token
        for role in _USED_ROLES[name]
        if tokenizer.token_to_id(token := special.get(role, f"{role}_token")) is None
    )
    if missing:
        raise CorruptModel(
            f"{path} lacks {', '.join(missing)}, which {name} puts around texts. Download the model again, "
            "or write the names of its special tokens into tokenizer_config.json."
        )
    tokenizer.post_processor = frame(tokenizer, special, config)


def _frame(single: str, pair: str) -> Frame:
    def frame(tokenizer: Any, special: Special, config: Mapping[str, Any]) -> Any:
        import tokenizers

        used = [special[role] for role in ROLES if f"{{{role}}}" in single + pair]
        return tokenizers.processors.TemplateProcessing(
            single=single.format(**special),
            pair=pair.format(**special),
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in used],
        )

    return frame


def _frame_bytes(tokenizer: Any, special: Special, config: Mapping[str, Any]) -> Any:
    return _frame_doubly(
        tokenizer,
        special,
        trim_offsets=bool(config.get("trim_offsets", True)),
        add_prefix_space=bool(config.get("add_prefix_space", False)),
    )


def _frame_mpnet(tokenizer: Any, special: Special, config: Mapping[str, Any]) -> Any:
    return _frame_doubly(tokenizer, special, trim_offsets=True, add_prefix_space=False)


def _frame_doubly(tokenizer: Any, special: Special, **settings: bool) -> Any:
    """Two separators between the texts of a pair."""
    import tokenizers

    separator, start = ((special[role], tokenizer.token_to_id(special[role])) for role in ("sep", "cls"))
    return tokenizers.processors.RobertaProcessing(separator, start, **settings)


_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}
_ENDED = {"bos": "[CLS]", "eos": "[SEP]"}

SPECIAL_TOKENS: Mapping[str, Special] = MappingProxyType(
    {
        "BertTokenizer": _BERT,
        "ConvBertTokenizer": _BERT,
        "DistilBertTokenizer": _BERT,
        "ElectraTokenizer": _BERT,
        "MPNetTokenizer": {**_ROBERTA, "unk": "[UNK]"},
        "RobertaTokenizer": _ROBERTA,
        "GPT2Tokenizer": dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
        "Qwen2Tokenizer": dict.fromkeys(("eos", "unk", "pad"), "<|endoftext|>"),
        "XLMRobertaTokenizer": _ROBERTA,
        "CamembertTokenizer": _ROBERTA,
        "AlbertTokenizer": {**_BERT, **_ENDED, "unk": "<unk>", "pad": "<pad>"},
        "DebertaV2Tokenizer": {**_BERT, **_ENDED},
        "T5Tokenizer": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    }
)
"""The special tokens of each class where the settings name no others."""

_frame_bert = _frame("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
_frame_nothing = _frame("$A:0", "$A:0 $B:1")
_frame_roberta = _frame("{bos} $A {eos}", "{bos} $A {eos} {eos} $B {eos}")

_FRAMES: Mapping[str, Frame] = MappingProxyType(
    {
        "BertTokenizer": _frame_bert,
        "ConvBertTokenizer": _frame_bert,
        "DistilBertTokenizer": _frame_bert,
        "ElectraTokenizer": _frame_bert,
        "MPNetTokenizer": _frame_mpnet,
        "RobertaTokenizer": _frame_bytes,
        "GPT2Tokenizer": _frame_nothing,
        "Qwen2Tokenizer": _frame_nothing,
        "XLMRobertaTokenizer": _frame_roberta,
        "CamembertTokenizer": _frame_roberta,
        "AlbertTokenizer": _frame_bert,
        "DebertaV2Tokenizer": _frame_bert,
        "T5Tokenizer": _frame("$A {eos}", "$A {eos} $B {eos}"),
    }
)

# Classes whose own tokens count only where tokenizer.json has none.
_FRAMED_BY_FILE = frozenset({"AlbertTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer"})

_USED_ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(_FRAMES, ("cls", "sep")),
        "GPT2Tokenizer": (),
        "Qwen2Tokenizer": (),
        "XLMRobertaTokenizer": ("bos", "eos"),
        "CamembertTokenizer": ("bos", "eos"),
        "T5Tokenizer": ("eos",),
    }
)
