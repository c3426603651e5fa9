"""The rules of transformers' tokenizer classes, which override tokenizer.json: one record for each class.

Most classes use only the vocabulary and the added tokens of tokenizer.json. The class itself defines
normalisation, word splitting and decoding (`text_rules`), with options of tokenizer_config.json, and the
special tokens of a text (`post_processors`); a few use the post-processor of tokenizer.json. `class_names`
finds the class of a model. If transformers has no class of that name, tokenizer.json is used unchanged. If
its class is not supported here, the model is refused. Some classes can also be built from vocabulary files
older than tokenizer.json (`conversion`).

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_texts
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.tokenization.building.class_names import UNKNOWN_CLASSES, ends_texts, find_class
from vecmill.tokenization.building.languages import MBART50_CODES, MBART_CODES
from vecmill.tokenization.building.post_processors import (
    MakePostProcessor,
    language_first,
    language_last,
    make_bert,
    make_deberta,
    make_herbert,
    make_mpnet,
    make_nllb,
    make_rembert,
    make_roberta,
    make_switched,
    make_xlm_roberta,
    make_xlnet,
    template,
)
from vecmill.tokenization.building.special_tokens import (
    SpecialTokens,
    add_special_tokens_map,
    find_special_tokens,
    lists_more_tokens,
    read_switch,
)
from vecmill.tokenization.building.text_rules import (
    set_albert,
    set_bert,
    set_byte_level,
    set_deberta,
    set_gemma,
    set_gpt_neox,
    set_herbert,
    set_llama,
    set_mbart,
    set_mbart50,
    set_nllb,
    set_qwen,
    set_rembert,
    set_sentencepiece,
    set_t5,
    set_xlnet,
)
from vecmill.tokenization.building.vocabulary_files import (
    BuildTokenizer,
    arrange_albert,
    arrange_camembert,
    arrange_deberta,
    arrange_languages,
    arrange_rembert,
    arrange_roberta,
    arrange_t5,
    arrange_xlnet,
    build_byte_pairs,
    build_piece_pairs,
    build_word_pieces,
    pieces_builder,
)
from vecmill.values.messages import show_name

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
_LLAMA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
_GEMMA = {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
_XLNET = {**_ROBERTA, "sep": "<sep>", "cls": "<cls>"}
_HERBERT = {role: _ROBERTA[role] for role in ("unk", "sep", "pad", "cls", "mask")}
_SWITCHES = frozenset({"add_bos_token", "add_eos_token"})
# Flags of a mask token that no file describes.
_STRIPS_LEFT = {"lstrip": True}
_STRIPS_LEFT_NORMALIZED = {"lstrip": True, "normalized": True}


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """The rules of a tokenizer class of transformers.

    `apply` sets normalisation and pre-tokenisation for a vocabulary of this `kind`; without it, those of
    tokenizer.json are used. `special_tokens` are the defaults. `add` makes the post-processor, which adds the
    tokens of the roles `added` to texts; with `prefers_file` only if tokenizer.json has none. `has_types`
    tells whether models of the class read token types, if tokenizer_config.json does not list their inputs.
    `build` makes a tokenizer from the vocabulary in one of `files`. `more` are special tokens without a role,
    and `mask` the flags of a mask token, if no file lists them.
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
    more: tuple[str, ...] = ()
    mask: Mapping[str, bool] = field(default_factory=dict)


_BERT_CLASS = TokenizerClass(
    "WordPiece",
    set_bert,
    _BERT,
    make_bert,
    has_types=True,
    files=("vocab.txt",),
    build=build_word_pieces,
)
_QWEN_CLASS = TokenizerClass(
    "BPE",
    set_qwen,
    dict.fromkeys(("eos", "unk", "pad"), "<|endoftext|>"),
    make_switched,
    added=(),
    prefers_file=True,
    files=("vocab.json",),
    build=build_byte_pairs,
)
_QWEN_ENDING_TEXTS = replace(
    _QWEN_CLASS, add=template("$A:0 {eos}:0", "$A:0 {eos}:0 $B:1 {eos}:1"), added=("eos",)
)
_XLM_ROBERTA_CLASS = TokenizerClass(
    "Unigram",
    set_sentencepiece,
    _ROBERTA,
    make_xlm_roberta,
    added=("bos", "eos"),
    files=("sentencepiece.bpe.model", "tokenizer.model"),
    build=pieces_builder(arrange_roberta),
)
_LLAMA_CLASS = TokenizerClass(
    "BPE",
    set_llama,
    _LLAMA,
    make_switched,
    added=(),
    prefers_file=True,
    files=("tokenizer.model",),
    build=build_piece_pairs,
)
_MBART_CLASS = TokenizerClass(
    "Unigram",
    set_mbart,
    _ROBERTA,
    language_last("en_XX"),
    added=("eos",),
    files=("sentencepiece.bpe.model", "tokenizer.model"),
    build=pieces_builder(arrange_languages("bos", MBART_CODES)),
    more=MBART_CODES,
    mask=_STRIPS_LEFT_NORMALIZED,
)
# Of a model without a class, or with one that transformers lacks.
NO_CLASS = TokenizerClass(
    add=make_switched, added=(), prefers_file=True, files=("tokenizer.model", "tiktoken.model")
)

CLASSES: Mapping[str, TokenizerClass] = {
    "AlbertTokenizer": TokenizerClass(
        "Unigram",
        set_albert,
        {**_BERT, **_BERT_ENDS, "unk": "<unk>", "pad": "<pad>"},
        make_bert,
        prefers_file=True,
        files=("spiece.model", "tokenizer.model"),
        build=pieces_builder(arrange_albert),
    ),
    "BertTokenizer": _BERT_CLASS,
    "CamembertTokenizer": replace(
        _XLM_ROBERTA_CLASS, build=pieces_builder(arrange_camembert), mask=_STRIPS_LEFT
    ),
    "ConvBertTokenizer": TokenizerClass(special_tokens=_BERT, add=make_bert, has_types=True),
    "DebertaTokenizer": TokenizerClass(
        "BPE",
        set_byte_level,
        {**_BERT, **_BERT_ENDS},
        make_deberta,
        has_types=True,
        files=("vocab.json",),
        build=build_byte_pairs,
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        "Unigram",
        set_deberta,
        {**_BERT, **_BERT_ENDS},
        make_bert,
        has_types=True,
        files=("spm.model", "tokenizer.model"),
        build=pieces_builder(arrange_deberta),
    ),
    "DistilBertTokenizer": replace(_BERT_CLASS, has_types=False),
    "ElectraTokenizer": _BERT_CLASS,
    "GPTNeoXTokenizer": replace(
        _QWEN_CLASS,
        apply=set_gpt_neox,
        special_tokens={**dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"), "pad": "<|padding|>"},
        prefers_file=False,
    ),
    "GPT2Tokenizer": replace(
        _QWEN_CLASS,
        apply=set_byte_level,
        special_tokens=dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
    ),
    "GemmaTokenizer": replace(_LLAMA_CLASS, apply=set_gemma, special_tokens=_GEMMA),
    "HerbertTokenizer": TokenizerClass(
        "BPE", set_herbert, _HERBERT, make_herbert, files=("vocab.json",), build=build_byte_pairs
    ),
    "LlamaTokenizer": _LLAMA_CLASS,
    "MBart50Tokenizer": replace(
        _MBART_CLASS,
        apply=set_mbart50,
        special_tokens={role: _ROBERTA[role] for role in _ROBERTA if role != "bos"},
        add=language_first("en_XX"),
        build=pieces_builder(arrange_languages("cls", MBART50_CODES)),
        more=MBART50_CODES,
    ),
    "MBartTokenizer": _MBART_CLASS,
    "MPNetTokenizer": TokenizerClass("WordPiece", set_bert, {**_ROBERTA, "unk": "[UNK]"}, make_mpnet),
    "NllbTokenizer": TokenizerClass("BPE", set_nllb, _ROBERTA, make_nllb, added=("eos",)),
    "Qwen2Tokenizer": _QWEN_CLASS,
    "RemBertTokenizer": TokenizerClass(
        "Unigram",
        set_rembert,
        {**_BERT, **_BERT_ENDS, "unk": "<unk>", "pad": "<pad>"},
        make_rembert,
        files=("sentencepiece.model", "tokenizer.model"),
        build=pieces_builder(arrange_rembert),
    ),
    "RobertaTokenizer": TokenizerClass(
        "BPE", set_byte_level, _ROBERTA, make_roberta, files=("vocab.json",), build=build_byte_pairs
    ),
    "T5Tokenizer": TokenizerClass(
        "Unigram",
        set_t5,
        {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
        template("$A {eos}", "$A {eos} $B {eos}"),
        added=("eos",),
        files=("spiece.model", "tokenizer.model"),
        build=pieces_builder(arrange_t5),
    ),
    "XLMRobertaTokenizer": _XLM_ROBERTA_CLASS,
    "XLNetTokenizer": TokenizerClass(
        "Unigram",
        set_xlnet,
        _XLNET,
        make_xlnet,
        files=("spiece.model", "tokenizer.model"),
        build=pieces_builder(arrange_xlnet),
        more=("<eop>", "<eod>"),
        mask=_STRIPS_LEFT_NORMALIZED,
    ),
}


def gives_token_types(tokenizer_config: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Return whether a model reads token types, which distinguish the two texts of a pair.

    Otherwise all tokens are of type 0, whatever tokenizer.json says.
    """
    if tokenizer_config.get("model_input_names") is None:
        known = CLASSES.get(find_class(tokenizer_config, config))
        return known is not None and known.has_types
    return "token_type_ids" in read_texts(tokenizer_config, "model_input_names", file=TOKENIZER_CONFIG)


def find_rules(tokenizer: Any, name: str) -> TokenizerClass:
    """Return the rules of the class `name` for a tokenizer that was read from a tokenizer.json.

    A class that transformers lacks has no rules, and Llama's is ignored for a byte-level vocabulary.
    """
    if name == "LlamaTokenizer" and _is_byte_level(tokenizer):
        return NO_CLASS
    return CLASSES.get(name, NO_CLASS)


def _is_byte_level(tokenizer: Any) -> bool:
    parts = (tokenizer.pre_tokenizer, tokenizer.post_processor, tokenizer.decoder)
    return any(b'"ByteLevel"' in part.__getstate__() for part in parts if part is not None)


def check_class(name: str, path: Path) -> None:
    """Raise `UnsupportedModel`, which names `path`, if the rules of the class are not supported."""
    if name in UNKNOWN_CLASSES:
        raise UnsupportedModel(
            f"The model's tokenizer class is {name}, whose rules are not supported. To use {path} "
            "unchanged, set tokenizer_class in tokenizer_config.json to 'PreTrainedTokenizerFast'."
        )


def apply_rules(
    known: TokenizerClass, tokenizer: Any, name: str, config: Mapping[str, Any], path: Path
) -> None:
    """Set the normalisation and word splitting of the class `name`, with the options of `config`.

    Changes `tokenizer`, which was read from `path`. Raises `UnsupportedModel` if the class needs another kind
    of vocabulary.
    """
    if known.apply is None:
        return
    found = type(tokenizer.model).__name__
    if found != known.kind:
        raise UnsupportedModel(
            f"{path} has a vocabulary of the kind {found}, but the model's tokenizer class is {name}, which "
            f"reads {known.kind}. To use that file unchanged, set tokenizer_class in tokenizer_config.json "
            "to 'PreTrainedTokenizerFast'."
        )
    known.apply(tokenizer, config)


def mark_more(known: TokenizerClass, tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Mark the further special tokens of a class as special, unless `config` lists others in their place."""
    vocabulary = tokenizer.get_vocab() if known.more else {}
    marked = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    if not lists_more_tokens(config):
        tokenizer.add_special_tokens(
            [token for token in known.more if token in vocabulary and token not in marked]
        )


def _ends_texts(tokenizer: Any, config: Mapping[str, Any]) -> bool:
    """Return whether replaced code adds an end-of-text token that tokenizer.json does not add."""
    is_template = type(tokenizer.post_processor).__name__ == "TemplateProcessing"
    asked = ends_texts(config) and read_switch(config, "add_eos_token", default=False)
    return asked and not is_template


def set_post_processor(
    known: TokenizerClass, tokenizer: Any, name: str, config: Mapping[str, Any], path: Path
) -> None:
    """Set the post-processor of the class `name`, which adds special tokens to texts, if it has one.

    Changes `tokenizer`, which was read from `path`. Raises `CorruptModel` if its vocabulary lacks the tokens.
    """
    if _ends_texts(tokenizer, config):
        known = _QWEN_ENDING_TEXTS
    elif known.add is None or (known.prefers_file and tokenizer.post_processor is not None):
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
    # transformers ignores these beside a tokenizer.json.
    switches = _SWITCHES if path.name == "tokenizer.json" else frozenset()
    heeded = {key: value for key, value in config.items() if key not in switches}
    tokenizer.post_processor = known.add(tokenizer, special, heeded)
