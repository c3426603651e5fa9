"""The normalisation and the word splitting of transformers' tokenizer classes.

Each function sets those of one class on a tokenizer with a vocabulary of the right kind, whatever its file
says, with the options of tokenizer_config.json. It also sets the decoder, and what the vocabulary's model
does with unknown words.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

from collections.abc import Mapping
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG, read_token
from vecmill.tokenization.building.charsmaps import find_charsmaps
from vecmill.tokenization.building.sentencepieces import SPACE
from vecmill.tokenization.building.special_tokens import read_switch
from vecmill.values.messages import show

_WORD_END = "</w>"  # of HerBERT


QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern of the words of Qwen and Qwen2."""


def set_bert(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of BERT. Raises `CorruptModel` if the vocabulary lacks the unknown token."""
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


def set_byte_level(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of GPT-2 and RoBERTa."""
    from tokenizers import decoders, pre_tokenizers

    _set_pairs(tokenizer, None)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = None
    spaced = read_switch(config, "add_prefix_space", default=False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)


def set_gpt_neox(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of GPT-NeoX: those of GPT-2 after NFC."""
    from tokenizers import normalizers

    set_byte_level(tokenizer, config)
    tokenizer.normalizer = normalizers.NFC()


def set_qwen(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of Qwen2."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    _set_pairs(tokenizer, None)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = normalizers.NFC()
    spaced = read_switch(config, "add_prefix_space", default=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=spaced, use_regex=False),
        ]
    )


def set_gemma(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of Gemma: spaces become marks, and unknown characters bytes."""
    from tokenizers import normalizers, pre_tokenizers

    unknown = read_token(config, "unk_token", TOKENIZER_CONFIG) or "<unk>"
    _set_pairs(tokenizer, unknown, fuse_unknown=True, byte_fallback=True)
    tokenizer.decoder = _join_bytes()
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")


def set_llama(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of Llama 2: a text gets a space before it, spaces become marks, a text is one word.

    With `legacy`, what follows a special token gets a space too.
    """
    from tokenizers import decoders, pre_tokenizers

    _set_pairs(tokenizer, None, fuse_unknown=True, byte_fallback=True)
    is_spaced = config.get("add_prefix_space") is None or read_switch(
        config, "add_prefix_space", default=True
    )
    scheme = "always" if read_switch(config, "legacy", default=False) else "first"
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        SPACE, prepend_scheme=scheme if is_spaced else "never", split=False
    )
    tokenizer.decoder = _join_bytes(*([decoders.Strip(" ", 1, 0)] if is_spaced else []))


def set_herbert(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of HerBERT: the words of BERT, cased, whose last pairs have a mark."""
    from tokenizers import decoders, normalizers, pre_tokenizers

    unknown = read_token(config, "unk_token", TOKENIZER_CONFIG) or "<unk>"
    _set_pairs(tokenizer, unknown, suffix=_WORD_END)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(_WORD_END)


# Whole words of letters, single digits, and other signs; special tokens and English endings stay together.
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def set_clip(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of CLIP: words in lower case, as byte pairs whose last ones have a mark."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    unknown = read_token(config, "unk_token", TOKENIZER_CONFIG) or "<|endoftext|>"
    _set_pairs(tokenizer, unknown, suffix=_WORD_END)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    split = pre_tokenizers.Split(Regex(_CLIP_WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()


def set_mbart(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of MBart: those of XLM-RoBERTa without its normalisation table."""
    tokenizer.normalizer = None
    _set_words(tokenizer, {})


def set_mbart50(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of MBart50."""
    from tokenizers import normalizers

    tokenizer.normalizer = normalizers.Sequence([*_table_of(tokenizer), _single_spaces()])
    _set_marked_words(tokenizer, {})


def set_nllb(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of NLLB."""
    from tokenizers import normalizers

    unknown = read_token(config, "unk_token", TOKENIZER_CONFIG) or "<unk>"
    _set_pairs(tokenizer, unknown, fuse_unknown=True)
    table = _table_of(tokenizer)
    tokenizer.normalizer = normalizers.Sequence([*table, _single_spaces()]) if table else None
    _set_marked_words(tokenizer, {})


def set_xlnet(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of XLNet, which always removes accents, whatever `keep_accents` says."""
    _set_accents(tokenizer, keeps_accents=False, lowers=read_switch(config, "do_lower_case", default=False))
    _set_words(tokenizer, {})


def set_sentencepiece(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of XLM-RoBERTa and CamemBERT."""
    tokenizer.normalizer = next(iter(_table_of(tokenizer)), None)
    _set_words(tokenizer, config)


def set_t5(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of T5."""
    set_sentencepiece(tokenizer, {})


def set_albert(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of ALBERT."""
    _set_accents(
        tokenizer,
        keeps_accents=read_switch(config, "keep_accents", default=False),
        lowers=read_switch(config, "do_lower_case", default=True),
    )
    _set_words(tokenizer, config)


def set_rembert(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of RemBERT: those of ALBERT, but only spaces end words, and several count as one."""
    _set_accents(
        tokenizer,
        keeps_accents=read_switch(config, "keep_accents", default=True),
        lowers=read_switch(config, "do_lower_case", default=False),
        joins_spaces=True,
    )
    _set_marked_words(tokenizer, config)


def set_deberta(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Set the rules of DeBERTa (versions 2 and 3)."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    stages: list[Any] = []
    if read_switch(config, "do_lower_case", default=False):
        stages.append(normalizers.Lowercase())
    stages += [
        normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
        normalizers.NFC(),
        normalizers.Strip(left=False, right=True),
    ]
    tokenizer.normalizer = normalizers.Sequence(stages)
    scheme = "always" if read_switch(config, "add_prefix_space", default=True) else "first"
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    cuts: list[Any] = []
    if read_switch(config, "split_by_punct", default=False):
        cuts.append(pre_tokenizers.Punctuation("isolated"))
    cuts.append(pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)


def _set_words(tokenizer: Any, config: Mapping[str, Any]) -> None:
    from tokenizers import decoders, pre_tokenizers

    scheme = "always" if read_switch(config, "add_prefix_space", default=True) else "never"
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)]
    )


def _set_marked_words(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Let words begin at spaces, which become marks; a text begins with one by `add_prefix_space`."""
    from tokenizers import decoders, pre_tokenizers

    scheme = "always" if read_switch(config, "add_prefix_space", default=True) else "never"
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme, split=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=True)


def _set_accents(tokenizer: Any, *, keeps_accents: bool, lowers: bool, joins_spaces: bool = False) -> None:
    """Set the normalisation of ALBERT, RemBERT and XLNet."""
    from tokenizers import normalizers

    stages: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if joins_spaces:
        stages.append(_single_spaces())
    if not keeps_accents:
        stages += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowers:
        stages.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence([*stages, *_table_of(tokenizer)])


def _set_pairs(
    tokenizer: Any,
    unknown: str | None,
    *,
    fuse_unknown: bool = False,
    byte_fallback: bool = False,
    suffix: str | None = None,
) -> None:
    """Set what byte-pair encoding does with unknown characters, and the end of a word, without options."""
    model = tokenizer.model
    model.unk_token, model.fuse_unk, model.byte_fallback = unknown, fuse_unknown, byte_fallback
    model.end_of_word_suffix, model.continuing_subword_prefix = suffix, None
    model.dropout, model.ignore_merges = None, False
    tokenizer.model = model


def _join_bytes(*stages: Any) -> Any:
    """Return the decoder of vocabularies with marks for spaces and with bytes, followed by `stages`."""
    from tokenizers import decoders

    return decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *stages]
    )


def _single_spaces() -> Any:
    from tokenizers import Regex, normalizers

    return normalizers.Replace(Regex(" {2,}"), " ")


def _table_of(tokenizer: Any) -> list[Any]:
    """Return a stage with sentencepiece's normalisation table in the tokenizer's file, if there is one."""
    from tokenizers import normalizers

    table = next(find_charsmaps(tokenizer.normalizer), None)
    return [] if table is None else [normalizers.Precompiled(table)]
