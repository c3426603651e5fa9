"""Applies the rules of transformers' tokenizer classes, which override tokenizer.json.

Most classes use only the vocabulary and the added tokens of tokenizer.json. The class itself defines
normalisation, pre-tokenisation and decoding, with options of tokenizer_config.json. `special_tokens` adds the
special tokens of a text, `class_names` finds the class of a model. If transformers has no class of that name,
tokenizer.json is used unchanged. If its class is not supported here, the model is refused.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_texts, show
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG, read_token
from vecmill.tokenization.building.class_names import UNKNOWN_CLASSES, find_class
from vecmill.tokenization.building.special_tokens import read_switch

_SPACE = "\u2581"  # of sentencepiece

BERT_CLASSES = frozenset({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"})

# The classes with token types, if tokenizer_config.json does not list the model's inputs.
_CLASSES_WITH_TYPES = frozenset(
    {"BertTokenizer", "ConvBertTokenizer", "DebertaV2Tokenizer", "ElectraTokenizer"}
)

# The pre-tokenisation of Qwen2's class.
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def gives_token_types(tokenizer_config: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Return whether a model reads token types, which distinguish the two texts of a pair.

    Otherwise all tokens are of type 0, whatever tokenizer.json says.
    """
    if tokenizer_config.get("model_input_names") is None:
        return find_class(tokenizer_config, config) in _CLASSES_WITH_TYPES
    return "token_type_ids" in read_texts(tokenizer_config, "model_input_names", file=TOKENIZER_CONFIG)


def apply_class(tokenizer: Any, name: str, config: Mapping[str, Any], path: Path) -> None:
    """Set the normalisation and pre-tokenisation of the class `name`, with the options of `config`.

    Changes `tokenizer`, which was read from `path`. Raises `UnsupportedModel` if the class is not supported,
    or if the class needs another kind of vocabulary.
    """
    if name in UNKNOWN_CLASSES and not _is_ignored(tokenizer, name):
        raise UnsupportedModel(
            f"The model's tokenizer class is {name}, whose rules are not supported. To use {path} "
            "unchanged, set tokenizer_class in tokenizer_config.json to 'PreTrainedTokenizerFast'."
        )
    kind, change = _CLASSES.get(name, ("", None))
    if change is None:
        return
    found = type(tokenizer.model).__name__
    if found != kind:
        raise UnsupportedModel(
            f"{path} has a vocabulary of the kind {found}, but the model's tokenizer class is {name}, which "
            f"reads {kind}. To use that file unchanged, set tokenizer_class in tokenizer_config.json to "
            "'PreTrainedTokenizerFast'."
        )
    change(tokenizer, config)


def _is_ignored(tokenizer: Any, name: str) -> bool:
    """Return whether transformers ignores the class. It ignores Llama's for a byte-level vocabulary."""
    if name != "LlamaTokenizer":
        return False
    parts = (tokenizer.pre_tokenizer, tokenizer.post_processor, tokenizer.decoder)
    return any(b'"ByteLevel"' in part.__getstate__() for part in parts if part is not None)


def _set_bert(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    model = tokenizer.model
    unknown = read_token(config, "unk_token", TOKENIZER_CONFIG) or "[UNK]"
    if tokenizer.token_to_id(unknown) is None:  # every unknown word would be an error
        raise CorruptModel(f"{TOKENIZER_CONFIG}: unk_token is {show(unknown)}, which the vocabulary lacks.")
    model.unk_token = unknown
    model.continuing_subword_prefix, model.max_input_chars_per_word = "##", 100
    tokenizer.model = model
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=read_switch(config, "tokenize_chinese_chars", default=True),
        strip_accents=None
        if config.get("strip_accents") is None
        else read_switch(config, "strip_accents", default=False),
        lowercase=read_switch(config, "do_lower_case", default=True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def _set_byte_level(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import decoders, pre_tokenizers

    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = None
    spaced = read_switch(config, "add_prefix_space", default=False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)


def _set_qwen(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = normalizers.NFC()
    spaced = read_switch(config, "add_prefix_space", default=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=spaced, use_regex=False),
        ]
    )


def _set_gemma(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")


def _set_sentencepiece(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import normalizers

    table = _charsmap(tokenizer)
    tokenizer.normalizer = None if table is None else normalizers.Precompiled(table)
    _set_words(tokenizer, config)


def _set_t5(tokenizer: Any, config: Mapping[str, Any]) -> None:
    _set_sentencepiece(tokenizer, {})


def _set_albert(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import normalizers

    table = _charsmap(tokenizer)
    stages: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not read_switch(config, "keep_accents", default=False):
        stages += [normalizers.NFKD(), normalizers.StripAccents()]
    if read_switch(config, "do_lower_case", default=True):
        stages.append(normalizers.Lowercase())
    if table is not None:
        stages.append(normalizers.Precompiled(table))
    tokenizer.normalizer = normalizers.Sequence(stages)
    _set_words(tokenizer, config)


def _set_deberta(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    stages: list[Any] = (
        [normalizers.Lowercase()] if read_switch(config, "do_lower_case", default=False) else []
    )
    stages += [
        normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
        normalizers.NFC(),
        normalizers.Strip(left=False, right=True),
    ]
    tokenizer.normalizer = normalizers.Sequence(stages)
    scheme = "always" if read_switch(config, "add_prefix_space", default=True) else "first"
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme)
    cuts: list[Any] = (
        [pre_tokenizers.Punctuation("isolated")]
        if read_switch(config, "split_by_punct", default=False)
        else []
    )
    cuts.append(pre_tokenizers.Metaspace(_SPACE, prepend_scheme=scheme))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)


def _set_words(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import decoders, pre_tokenizers

    scheme = "always" if read_switch(config, "add_prefix_space", default=True) else "never"
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(_SPACE, prepend_scheme=scheme)]
    )


def _charsmap(tokenizer: Any) -> bytes | None:
    """Return the normalisation table of sentencepiece in tokenizer.json, if any."""
    import base64

    if tokenizer.normalizer is None:
        return None
    state = json.loads(tokenizer.normalizer.__getstate__())
    for stage in state.get("normalizers", [state]):
        if stage.get("type") == "Precompiled":
            return base64.b64decode(stage["precompiled_charsmap"])
    return None


# Class -> the kind of its vocabulary, and the function that applies its rules.
_CLASSES: Mapping[str, tuple[str, Callable[[Any, Mapping[str, Any]], None]]] = MappingProxyType(
    {
        **dict.fromkeys((*BERT_CLASSES, "MPNetTokenizer"), ("WordPiece", _set_bert)),
        **dict.fromkeys(("GPT2Tokenizer", "RobertaTokenizer"), ("BPE", _set_byte_level)),
        "GemmaTokenizer": ("BPE", _set_gemma),
        "Qwen2Tokenizer": ("BPE", _set_qwen),
        "XLMRobertaTokenizer": ("Unigram", _set_sentencepiece),
        "CamembertTokenizer": ("Unigram", _set_sentencepiece),
        "T5Tokenizer": ("Unigram", _set_t5),
        "AlbertTokenizer": ("Unigram", _set_albert),
        "DebertaV2Tokenizer": ("Unigram", _set_deberta),
    }
)
