"""The special tokens of transformers' tokenizer classes, and the post-processors that add them to texts.

Most classes add their own special tokens, named in tokenizer_config.json, and ignore the post-processor of
tokenizer.json. The other classes use that post-processor.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.config_fields import read_flag, show_name
from vecmill.models.directory import read_object
from vecmill.models.tokenizer_file import SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, read_token

SpecialTokens = Mapping[str, str]
"""Role -> token, in the order in which transformers adds the tokens."""

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

# Tokenizer, special tokens, tokenizer_config.json -> a post-processor of the tokenizers library.
MakePostProcessor = Callable[[Any, SpecialTokens, Mapping[str, Any]], Any]


def add_special_tokens_map(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `config`, updated by special_tokens_map.json unless `config` lists added tokens."""
    if "added_tokens_decoder" in config:
        return config
    return {**config, **(read_object(folder, SPECIAL_TOKENS_MAP) or {})}


def find_special_tokens(name: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of `settings`, with the defaults of the class `name`.

    `settings` is the result of `add_special_tokens_map`.
    """
    defaults = SPECIAL_TOKENS.get(name, {})
    return {
        role: content
        for role in ROLES
        if (content := _read_role(settings, role, defaults.get(role))) is not None
    }


def list_more_tokens(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the additional special tokens, each with its place in tokenizer_config.json.

    Raises `CorruptModel` if they are neither a list nor an object.
    """
    found: list[tuple[str, Any]] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(key) or []
        if not isinstance(more, list | dict):
            raise CorruptModel(f"{TOKENIZER_CONFIG}: {key} must be a list or an object of tokens.")
        values = more.values() if isinstance(more, dict) else more
        found += [(f"{TOKENIZER_CONFIG}: {key}", value) for value in values]
    return found


def _read_role(settings: Mapping[str, Any], role: str, default: str | None) -> str | None:
    key = f"{role}_token"
    return read_token(settings, key, TOKENIZER_CONFIG) if key in settings else default


def read_switch(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Read true or false of tokenizer_config.json. Null is false, as in transformers' classes."""
    is_null = key in config and config[key] is None
    return not is_null and read_flag(config, key, default=default, file=TOKENIZER_CONFIG)


def set_post_processor(tokenizer: Any, name: str, config: Mapping[str, Any], path: Path) -> None:
    """Set the post-processor of the class `name`, which adds special tokens to texts, if it has one.

    Changes `tokenizer`, which was read from `path`. Raises `CorruptModel` if its vocabulary lacks the tokens.
    """
    make = _POST_PROCESSORS.get(name)
    if make is None or (name in _DEFAULTS_TO_FILE and tokenizer.post_processor is not None):
        return
    special = find_special_tokens(name, add_special_tokens_map(path.parent, config))
    missing = sorted(
        f"{show_name(token)} ({role}_token)"
        for role in _USED_ROLES[name]
        if tokenizer.token_to_id(token := special.get(role, "none")) is None
    )
    if missing:
        raise CorruptModel(
            f"{path} lacks {', '.join(missing)}, which {name} adds to texts. Download the model again, "
            "or name its special tokens in tokenizer_config.json."
        )
    tokenizer.post_processor = make(tokenizer, special, config)


def _template(single: str, pair: str) -> MakePostProcessor:
    def make(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        import tokenizers

        used = [special[role] for role in ROLES if f"{{{role}}}" in single + pair]
        return tokenizers.processors.TemplateProcessing(
            single=single.format(**special),
            pair=pair.format(**special),
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in used],
        )

    return make


def _make_roberta(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    return _roberta_processor(
        tokenizer,
        special,
        trim_offsets=read_switch(config, "trim_offsets", default=True),
        add_prefix_space=read_switch(config, "add_prefix_space", default=False),
    )


def _make_mpnet(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    return _roberta_processor(tokenizer, special, trim_offsets=True, add_prefix_space=False)


def _roberta_processor(tokenizer: Any, special: SpecialTokens, **settings: bool) -> Any:
    """Return a processor that puts two separators between the texts of a pair."""
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
_BERT_ENDS = {"bos": "[CLS]", "eos": "[SEP]"}

SPECIAL_TOKENS: Mapping[str, SpecialTokens] = MappingProxyType(
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
        "AlbertTokenizer": {**_BERT, **_BERT_ENDS, "unk": "<unk>", "pad": "<pad>"},
        "DebertaV2Tokenizer": {**_BERT, **_BERT_ENDS},
        "T5Tokenizer": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    }
)
"""The default special tokens of each class."""

_make_bert = _template("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
_make_plain = _template("$A:0", "$A:0 $B:1")
_make_xlm_roberta = _template("{bos} $A {eos}", "{bos} $A {eos} {eos} $B {eos}")

_POST_PROCESSORS: Mapping[str, MakePostProcessor] = MappingProxyType(
    {
        "BertTokenizer": _make_bert,
        "ConvBertTokenizer": _make_bert,
        "DistilBertTokenizer": _make_bert,
        "ElectraTokenizer": _make_bert,
        "MPNetTokenizer": _make_mpnet,
        "RobertaTokenizer": _make_roberta,
        "GPT2Tokenizer": _make_plain,
        "Qwen2Tokenizer": _make_plain,
        "XLMRobertaTokenizer": _make_xlm_roberta,
        "CamembertTokenizer": _make_xlm_roberta,
        "AlbertTokenizer": _make_bert,
        "DebertaV2Tokenizer": _make_bert,
        "T5Tokenizer": _template("$A {eos}", "$A {eos} $B {eos}"),
    }
)

# Classes that use their post-processor only if tokenizer.json has none.
_DEFAULTS_TO_FILE = frozenset({"AlbertTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer"})

_USED_ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(_POST_PROCESSORS, ("cls", "sep")),
        "GPT2Tokenizer": (),
        "Qwen2Tokenizer": (),
        "XLMRobertaTokenizer": ("bos", "eos"),
        "CamembertTokenizer": ("bos", "eos"),
        "T5Tokenizer": ("eos",),
    }
)
