"""The rules of transformers' tokenizer classes, which override tokenizer.json: one record for each class.

Most classes use only the vocabulary and the added tokens of tokenizer.json. The class itself defines
normalisation, pre-tokenisation and decoding, with options of tokenizer_config.json, and the special tokens of
a text; a few use the post-processor of tokenizer.json. `class_names` finds the class of a model. If
transformers has no class of that name, tokenizer.json is used unchanged. If its class is not supported here,
the model is refused. Some classes can also be built from vocabulary files older than tokenizer.json.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_texts
from vecmill.models.directory import FileLimits
from vecmill.models.tokenizer_file import LARGEST_TOKENIZER, TOKENIZER_CONFIG, read_token
from vecmill.tokenization.building.class_names import UNKNOWN_CLASSES, find_class, replaces_tokenizer_code
from vecmill.tokenization.building.special_tokens import (
    ROLES,
    SpecialTokens,
    add_special_tokens_map,
    add_tokens,
    find_special_tokens,
    read_switch,
)
from vecmill.tokenization.building.vocabulary_files import (
    BuildTokenizer,
    VocabularyFile,
    arrange_albert,
    arrange_camembert,
    arrange_deberta,
    arrange_roberta,
    arrange_t5,
    build_byte_pairs,
    build_word_pieces,
    pieces_builder,
)
from vecmill.values.messages import show, show_name

_SPACE = "\u2581"  # of sentencepiece


# The pre-tokenisation of Qwen2's class.
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


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
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme)
    cuts: list[Any] = []
    if read_switch(config, "split_by_punct", default=False):
        cuts.append(pre_tokenizers.Punctuation("isolated"))
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


# Tokenizer, special tokens, tokenizer_config.json -> a post-processor of the tokenizers library.
MakePostProcessor = Callable[[Any, SpecialTokens, Mapping[str, Any]], Any]


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
_make_bert = _template("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
_make_plain = _template("$A:0", "$A:0 $B:1")
_make_xlm_roberta = _template("{bos} $A {eos}", "{bos} $A {eos} {eos} $B {eos}")


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """The rules of a tokenizer class of transformers.

    `apply` sets normalisation and pre-tokenisation for a vocabulary of this `kind`; without it, those of
    tokenizer.json are used. `special_tokens` are the defaults. `add` makes the post-processor, which adds the
    tokens of the roles `added` to texts; with `prefers_file` only if tokenizer.json has none. `has_types`
    tells whether models of the class read token types, if tokenizer_config.json does not list their inputs.
    `build` makes a tokenizer from the vocabulary in one of `files`, with the mask token's default
    `mask_strips_left`.
    """

    kind: str = ""
    apply: Callable[[Any, Mapping[str, Any]], None] | None = None
    special_tokens: SpecialTokens = field(default_factory=dict)
    add: MakePostProcessor | None = None
    added: tuple[str, ...] = ("cls", "sep")
    prefers_file: bool = False
    has_types: bool = False
    files: tuple[str, ...] = ()
    build: BuildTokenizer | None = None
    mask_strips_left: bool = False


_BERT_CLASS = TokenizerClass(
    "WordPiece",
    _set_bert,
    _BERT,
    _make_bert,
    has_types=True,
    files=("vocab.txt",),
    build=build_word_pieces,
)
_QWEN_CLASS = TokenizerClass(
    "BPE",
    _set_qwen,
    dict.fromkeys(("eos", "unk", "pad"), "<|endoftext|>"),
    _make_plain,
    added=(),
    prefers_file=True,
    files=("vocab.json",),
    build=build_byte_pairs,
)
_QWEN_ENDING_TEXTS = replace(
    _QWEN_CLASS, add=_template("$A:0 {eos}:0", "$A:0 {eos}:0 $B:1 {eos}:1"), added=("eos",)
)
_XLM_ROBERTA_CLASS = TokenizerClass(
    "Unigram",
    _set_sentencepiece,
    _ROBERTA,
    _make_xlm_roberta,
    added=("bos", "eos"),
    files=("sentencepiece.bpe.model",),
    build=pieces_builder(arrange_roberta),
)

CLASSES: Mapping[str, TokenizerClass] = {
    "AlbertTokenizer": TokenizerClass(
        "Unigram",
        _set_albert,
        {**_BERT, **_BERT_ENDS, "unk": "<unk>", "pad": "<pad>"},
        _make_bert,
        prefers_file=True,
        files=("spiece.model",),
        build=pieces_builder(arrange_albert),
    ),
    "BertTokenizer": _BERT_CLASS,
    "CamembertTokenizer": replace(
        _XLM_ROBERTA_CLASS, build=pieces_builder(arrange_camembert), mask_strips_left=True
    ),
    "ConvBertTokenizer": TokenizerClass(special_tokens=_BERT, add=_make_bert, has_types=True),
    "DebertaV2Tokenizer": TokenizerClass(
        "Unigram",
        _set_deberta,
        {**_BERT, **_BERT_ENDS},
        _make_bert,
        has_types=True,
        files=("spm.model",),
        build=pieces_builder(arrange_deberta),
    ),
    "DistilBertTokenizer": replace(_BERT_CLASS, has_types=False),
    "ElectraTokenizer": _BERT_CLASS,
    "GPT2Tokenizer": replace(
        _QWEN_CLASS,
        apply=_set_byte_level,
        special_tokens=dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
        files=(),
        build=None,
    ),
    "GemmaTokenizer": TokenizerClass("BPE", _set_gemma),
    "MPNetTokenizer": TokenizerClass("WordPiece", _set_bert, {**_ROBERTA, "unk": "[UNK]"}, _make_mpnet),
    "Qwen2Tokenizer": _QWEN_CLASS,
    "RobertaTokenizer": TokenizerClass(
        "BPE", _set_byte_level, _ROBERTA, _make_roberta, files=("vocab.json",), build=build_byte_pairs
    ),
    "T5Tokenizer": TokenizerClass(
        "Unigram",
        _set_t5,
        {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
        _template("$A {eos}", "$A {eos} $B {eos}"),
        added=("eos",),
        files=("spiece.model",),
        build=pieces_builder(arrange_t5),
    ),
    "XLMRobertaTokenizer": _XLM_ROBERTA_CLASS,
}


def gives_token_types(tokenizer_config: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Return whether a model reads token types, which distinguish the two texts of a pair.

    Otherwise all tokens are of type 0, whatever tokenizer.json says.
    """
    if tokenizer_config.get("model_input_names") is None:
        known = CLASSES.get(find_class(tokenizer_config, config))
        return known is not None and known.has_types
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
    known = CLASSES.get(name)
    if known is None or known.apply is None:
        return
    found = type(tokenizer.model).__name__
    if found != known.kind:
        raise UnsupportedModel(
            f"{path} has a vocabulary of the kind {found}, but the model's tokenizer class is {name}, which "
            f"reads {known.kind}. To use that file unchanged, set tokenizer_class in tokenizer_config.json "
            "to 'PreTrainedTokenizerFast'."
        )
    known.apply(tokenizer, config)


def _is_ignored(tokenizer: Any, name: str) -> bool:
    """Return whether transformers ignores the class. It ignores Llama's for a byte-level vocabulary."""
    if name != "LlamaTokenizer":
        return False
    parts = (tokenizer.pre_tokenizer, tokenizer.post_processor, tokenizer.decoder)
    return any(b'"ByteLevel"' in part.__getstate__() for part in parts if part is not None)


def _ends_texts(tokenizer: Any, config: Mapping[str, Any]) -> bool:
    """Return whether replaced code adds an end-of-text token that tokenizer.json does not add."""
    is_template = type(tokenizer.post_processor).__name__ == "TemplateProcessing"
    asked = replaces_tokenizer_code(config) and read_switch(config, "add_eos_token", default=False)
    return asked and not is_template


def set_post_processor(tokenizer: Any, name: str, config: Mapping[str, Any], path: Path) -> None:
    """Set the post-processor of the class `name`, which adds special tokens to texts, if it has one.

    Changes `tokenizer`, which was read from `path`. Raises `CorruptModel` if its vocabulary lacks the tokens.
    """
    known = CLASSES.get(name)
    if _ends_texts(tokenizer, config):
        known = _QWEN_ENDING_TEXTS
    elif known is None or known.add is None or (known.prefers_file and tokenizer.post_processor is not None):
        return
    assert known.add is not None
    special = find_special_tokens(known.special_tokens, add_special_tokens_map(path.parent, config))
    missing = sorted(
        f"{show_name(token)} ({role}_token)"
        for role in known.added
        if tokenizer.token_to_id(token := special.get(role, "none")) is None
    )
    if missing:
        raise CorruptModel(
            f"{path} lacks {', '.join(missing)}, which {name} adds to texts. Download the model again, "
            "or name its special tokens in tokenizer_config.json."
        )
    tokenizer.post_processor = known.add(tokenizer, special, config)


def convert_vocabulary(
    path: Path, name: str, config: Mapping[str, Any], limits: FileLimits = LARGEST_TOKENIZER
) -> Any:
    """Build the `tokenizers.Tokenizer` of the class `name` from the vocabulary file `path`.

    `config` is the whole tokenizer_config.json, `limits` those of each file. Raises `UnsupportedModel` if the
    class is not supported or does not read the file, `CorruptModel` if a file is broken.
    """
    known = CLASSES.get(name)
    if known is None or known.build is None or path.name not in known.files:
        raise UnsupportedModel(
            f"{path.parent} has {path.name} and no tokenizer.json, from which no tokenizer of the class "
            f"{name or 'that the model has'!r} can be built. Write one with "
            "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
        )
    settings = add_special_tokens_map(path.parent, config)
    special = find_special_tokens(known.special_tokens, settings)
    missing_roles = sorted(set(known.special_tokens) - set(special))
    if missing_roles:
        keys = ", ".join(f"{role}_token" for role in missing_roles)
        raise CorruptModel(f"{path.parent / TOKENIZER_CONFIG}: {keys} must be a string.")
    tokenizer = known.build(VocabularyFile(path, limits), special, config)
    apply_class(tokenizer, name, config, path)
    add_tokens(tokenizer, path.parent, settings, special, mask_strips_left=known.mask_strips_left)
    set_post_processor(tokenizer, name, config, path)
    return tokenizer
