"""What transformers' tokenizer classes decide themselves, whatever tokenizer.json says of it.

Most classes take from tokenizer.json only the vocabulary and the added tokens. How letters are normalised,
texts are cut into words, and tokens are put together again is written in the class, and tokenizer_config.json
sets its options; what goes around a text is in `frames`, which class a model has in `tokenizer_names`.
Where transformers has no class of that name, tokenizer.json counts; where it has one that is not here, the
model is refused.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import UnsupportedModel
from vecmill.models.frames import token_content
from vecmill.models.tokenizer_names import UNKNOWN_CLASSES, find_class

_SPACE = "\u2581"  # how sentencepiece writes one

BERT_CLASSES = frozenset({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"})

# The classes that give token types where tokenizer_config.json does not say what they give.
_CLASSES_WITH_TYPES = frozenset(
    {"BertTokenizer", "ConvBertTokenizer", "DebertaV2Tokenizer", "ElectraTokenizer"}
)

# How Qwen2's class cuts texts before pairs are merged.
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def gives_token_types(tokenizer_config: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a model is told which of two texts a token is from; otherwise all are of type 0.

    What tokenizer.json says of types counts only then.
    """
    names = tokenizer_config.get("model_input_names")
    if names is None:
        return find_class(tokenizer_config, config) in _CLASSES_WITH_TYPES
    return "token_type_ids" in names


def apply_class(tokenizer: Any, name: str, config: Mapping[str, Any], path: Path) -> None:
    """Let the class called `name` decide about letters and words, with its options from `config`.

    Changes `tokenizer`, which was read from `path`. Raises `UnsupportedModel` if the class is not known here,
    or if its vocabulary is of another kind than the class's: transformers would read it as what it is not.
    """
    if name in UNKNOWN_CLASSES and not _counts_alone(tokenizer, name):
        raise UnsupportedModel(
            f"The model's tokenizer class is {name}, which has rules of its own that are not known here. If "
            f"texts are to be read as {path} says, set tokenizer_class in tokenizer_config.json to "
            "'PreTrainedTokenizerFast'."
        )
    kind, change = _CLASSES.get(name, ("", None))
    if change is None:
        return
    found = type(tokenizer.model).__name__
    if found != kind:
        raise UnsupportedModel(
            f"{path} has a vocabulary of the kind {found}, but the model's tokenizer class is {name}, which "
            f"reads {kind}. If texts are to be read as that file says, set tokenizer_class in "
            "tokenizer_config.json to 'PreTrainedTokenizerFast'."
        )
    change(tokenizer, config)


def _counts_alone(tokenizer: Any, name: str) -> bool:
    """Whether transformers passes over the class: Llama's, for a vocabulary of bytes."""
    if name != "LlamaTokenizer":
        return False
    parts = (tokenizer.pre_tokenizer, tokenizer.post_processor, tokenizer.decoder)
    return any(b'"ByteLevel"' in part.__getstate__() for part in parts if part is not None)


def _set_bert_letters(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """As BERT's classes: cleaned, lower-cased unless told otherwise, Chinese characters apart."""
    from tokenizers import decoders, normalizers, pre_tokenizers

    model = tokenizer.model
    model.unk_token = token_content(config.get("unk_token")) or "[UNK]"
    model.continuing_subword_prefix, model.max_input_chars_per_word = "##", 100
    tokenizer.model = model
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=config.get("strip_accents"),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def _set_byte_level(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import decoders, pre_tokenizers

    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = None
    spaced = bool(config.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)


def _set_qwen(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = normalizers.NFC()
    spaced = bool(config.get("add_prefix_space") or False)
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
    if not config.get("keep_accents", False):
        stages += [normalizers.NFKD(), normalizers.StripAccents()]
    if config.get("do_lower_case", True):
        stages.append(normalizers.Lowercase())
    if table is not None:
        stages.append(normalizers.Precompiled(table))
    tokenizer.normalizer = normalizers.Sequence(stages)
    _set_words(tokenizer, config)


def _set_deberta(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    stages: list[Any] = [normalizers.Lowercase()] if config.get("do_lower_case", False) else []
    stages += [
        normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
        normalizers.NFC(),
        normalizers.Strip(left=False, right=True),
    ]
    tokenizer.normalizer = normalizers.Sequence(stages)
    scheme = "always" if config.get("add_prefix_space", True) else "first"
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme)
    cuts: list[Any] = [pre_tokenizers.Punctuation("isolated")] if config.get("split_by_punct", False) else []
    cuts.append(pre_tokenizers.Metaspace(_SPACE, prepend_scheme=scheme))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)


def _set_words(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import decoders, pre_tokenizers

    scheme = "always" if config.get("add_prefix_space", True) else "never"
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(_SPACE, prepend_scheme=scheme)]
    )


def _charsmap(tokenizer: Any) -> bytes | None:
    """The table by which sentencepiece normalises characters, if tokenizer.json has one."""
    import base64

    if tokenizer.normalizer is None:
        return None
    state = json.loads(tokenizer.normalizer.__getstate__())
    for stage in state.get("normalizers", [state]):
        if stage.get("type") == "Precompiled":
            return base64.b64decode(stage["precompiled_charsmap"])
    return None


# Class -> what kind of vocabulary it has, and what it decides.
_CLASSES: Mapping[str, tuple[str, Callable[[Any, Mapping[str, Any]], None]]] = MappingProxyType(
    {
        **dict.fromkeys((*BERT_CLASSES, "MPNetTokenizer"), ("WordPiece", _set_bert_letters)),
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
