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

from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import read_texts
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.tokenization.building import post_processors, text_rules, unknown_pieces, vocabulary_files
from vecmill.tokenization.building.class_names import SIGLIP_CLASS, UNKNOWN_CLASSES, find_class
from vecmill.tokenization.building.languages import MBART50_CODES, MBART_CODES, NLLB_CODES
from vecmill.tokenization.building.post_processors import MakePostProcessor
from vecmill.tokenization.building.special_tokens import (
    ChooseMore,
    ClassTokens,
    Token,
    text_of,
)
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.building.unknown_pieces import FindUnknown
from vecmill.tokenization.building.vocabulary_files import BuildTokenizer

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
_END_OF_TEXT = "<|endoftext|>"
_BERT_ENDS = {"bos": "[CLS]", "eos": "[SEP]"}
_LLAMA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
_GEMMA = {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
_XLNET = {**_ROBERTA, "sep": "<sep>", "cls": "<cls>"}
_HERBERT = {role: _ROBERTA[role] for role in ("unk", "sep", "pad", "cls", "mask")}
# Flags of a mask token that no file describes.
_STRIPS_LEFT = {"lstrip": True}


def _either(*tokens: str) -> ChooseMore:
    """Return the choice of the tokens that are given, or of those of the class if none are given."""
    return lambda given, settings: list(tokens) if given is None else given


def _codes_first(given: list[Token] | None, settings: Mapping[str, Any]) -> list[Token]:
    return [*MBART_CODES, *(token for token in given or () if text_of(token) not in MBART_CODES)]


def _codes_last(given: list[Token] | None, settings: Mapping[str, Any]) -> list[Token]:
    return [*(given or ()), *MBART50_CODES]


def _add_extra_ids(given: list[Token] | None, settings: Mapping[str, Any]) -> list[Token]:
    if any("<extra_id_" in text_of(token) for token in given or ()):
        return given or []
    return [
        *(given or ()),
        *(f"<extra_id_{number}>" for number in range(vocabulary_files.read_extra_ids(settings))),
    ]


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """The rules of a tokenizer class of transformers.

    `apply` sets normalisation and pre-tokenisation for a vocabulary of this `kind`, which then has only the
    added tokens that the class merges from all files; without it, those of tokenizer.json are used. `tokens`
    are its special tokens. `add` makes the post-processor, which adds the tokens of the roles `added` to
    texts; with `prefers_file` only if tokenizer.json has none. `has_types` tells whether models of the class
    read token types, if tokenizer_config.json does not list their inputs. `build` makes a tokenizer from the
    vocabulary in one of `files`. `find_unknown` returns the unknown piece of a unigram vocabulary in
    tokenizer.json.
    """

    kind: str = ""
    apply: Callable[[Any, Mapping[str, Any]], None] | None = None
    tokens: ClassTokens = field(default_factory=ClassTokens)
    add: MakePostProcessor | None = None
    added: tuple[str, ...] = ("cls", "sep")
    prefers_file: bool = False
    has_types: bool = False
    files: tuple[str, ...] = ()
    build: BuildTokenizer | None = None
    find_unknown: FindUnknown | None = None


_BERT_CLASS = TokenizerClass(
    "WordPiece",
    text_rules.set_bert,
    ClassTokens(_BERT),
    post_processors.make_bert,
    has_types=True,
    files=("vocab.txt",),
    build=vocabulary_files.build_word_pieces,
)
_QWEN_CLASS = TokenizerClass(
    "BPE",
    text_rules.set_qwen,
    ClassTokens(dict.fromkeys(("eos", "unk", "pad"), _END_OF_TEXT), marks_again=True),
    post_processors.make_switched,
    added=(),
    prefers_file=True,
    files=("vocab.json",),
    build=vocabulary_files.build_byte_pairs,
)
QWEN_ENDING_TEXTS = replace(
    _QWEN_CLASS, add=post_processors.template("$A:0 {eos}:0", "$A:0 {eos}:0 $B:1 {eos}:1"), added=("eos",)
)
_XLM_ROBERTA_CLASS = TokenizerClass(
    "Unigram",
    text_rules.set_sentencepiece,
    ClassTokens(_ROBERTA),
    post_processors.make_xlm_roberta,
    added=("bos", "eos"),
    files=("sentencepiece.bpe.model", "tokenizer.model"),
    build=vocabulary_files.pieces_builder(vocabulary_files.arrange_roberta),
    find_unknown=unknown_pieces.fixed_unknown(3),
)
_LLAMA_CLASS = TokenizerClass(
    "BPE",
    text_rules.set_llama,
    ClassTokens(_LLAMA, takes_padding=True),
    post_processors.make_switched,
    added=(),
    prefers_file=True,
    files=("tokenizer.model",),
    build=vocabulary_files.build_piece_pairs,
)
_MBART_CLASS = TokenizerClass(
    "Unigram",
    text_rules.set_mbart,
    ClassTokens(_ROBERTA, _STRIPS_LEFT, _codes_first),
    post_processors.language_last("en_XX"),
    added=("eos",),
    files=("sentencepiece.bpe.model", "tokenizer.model"),
    build=vocabulary_files.pieces_builder(vocabulary_files.arrange_languages("bos", MBART_CODES)),
    find_unknown=unknown_pieces.fixed_unknown(3),
)
# Of a model without a class, or with one that transformers lacks.
NO_CLASS = TokenizerClass(
    tokens=ClassTokens(takes_padding=True),
    add=post_processors.make_switched,
    added=(),
    prefers_file=True,
    files=("tokenizer.model", "tiktoken.model"),
)

CLASSES: Mapping[str, TokenizerClass] = {
    "AlbertTokenizer": TokenizerClass(
        "Unigram",
        text_rules.set_albert,
        ClassTokens({**_BERT, **_BERT_ENDS, "unk": "<unk>", "pad": "<pad>"}),
        post_processors.make_bert,
        prefers_file=True,
        files=("spiece.model", "tokenizer.model"),
        build=vocabulary_files.pieces_builder(vocabulary_files.as_they_are(1)),
        find_unknown=unknown_pieces.fixed_unknown(1),
    ),
    "BertTokenizer": _BERT_CLASS,
    "CLIPTokenizer": TokenizerClass(
        "BPE",
        text_rules.set_clip,
        ClassTokens({"bos": "<|startoftext|>", **dict.fromkeys(("eos", "unk", "pad"), _END_OF_TEXT)}),
        post_processors.make_clip,
        added=("bos", "eos"),
        files=("vocab.json",),
        build=vocabulary_files.build_byte_pairs,
    ),
    "CamembertTokenizer": replace(
        _XLM_ROBERTA_CLASS,
        tokens=ClassTokens(
            _ROBERTA,
            {"lstrip": True, "special": True},
            _either("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
        ),
        build=vocabulary_files.pieces_builder(vocabulary_files.arrange_camembert),
        find_unknown=unknown_pieces.named_unknown,
    ),
    "ConvBertTokenizer": TokenizerClass(
        tokens=ClassTokens(_BERT), add=post_processors.make_bert, has_types=True
    ),
    "DebertaTokenizer": TokenizerClass(
        "BPE",
        text_rules.set_byte_level,
        ClassTokens({**_BERT, **_BERT_ENDS}),
        post_processors.make_deberta,
        has_types=True,
        files=("vocab.json",),
        build=vocabulary_files.build_byte_pairs,
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        "Unigram",
        text_rules.set_deberta,
        ClassTokens({**_BERT, **_BERT_ENDS}),
        post_processors.make_bert,
        has_types=True,
        files=("spm.model", "tokenizer.model"),
        build=vocabulary_files.pieces_builder(vocabulary_files.arrange_deberta),
        find_unknown=unknown_pieces.unscored_unknown,
    ),
    "DistilBertTokenizer": replace(_BERT_CLASS, has_types=False),
    "ElectraTokenizer": _BERT_CLASS,
    "GPTNeoXTokenizer": replace(
        _QWEN_CLASS,
        apply=text_rules.set_gpt_neox,
        tokens=ClassTokens({**dict.fromkeys(("bos", "eos", "unk"), _END_OF_TEXT), "pad": "<|padding|>"}),
        prefers_file=False,
    ),
    "GPT2Tokenizer": replace(
        _QWEN_CLASS,
        apply=text_rules.set_byte_level,
        tokens=ClassTokens(dict.fromkeys(("bos", "eos", "unk"), _END_OF_TEXT)),
    ),
    "GemmaTokenizer": replace(_LLAMA_CLASS, apply=text_rules.set_gemma, tokens=ClassTokens(_GEMMA)),
    "HerbertTokenizer": TokenizerClass(
        "BPE",
        text_rules.set_herbert,
        ClassTokens(_HERBERT),
        post_processors.make_herbert,
        files=("vocab.json",),
        build=vocabulary_files.build_byte_pairs,
    ),
    "LlamaTokenizer": _LLAMA_CLASS,
    "MBart50Tokenizer": replace(
        _MBART_CLASS,
        apply=text_rules.set_mbart50,
        tokens=ClassTokens(
            {role: _ROBERTA[role] for role in _ROBERTA if role != "bos"}, _STRIPS_LEFT, _codes_last
        ),
        add=post_processors.language_first("en_XX"),
        build=vocabulary_files.pieces_builder(vocabulary_files.arrange_languages("cls", MBART50_CODES)),
    ),
    "MBartTokenizer": _MBART_CLASS,
    "MPNetTokenizer": TokenizerClass(
        "WordPiece",
        text_rules.set_bert,
        ClassTokens({**_ROBERTA, "unk": "[UNK]"}, _STRIPS_LEFT),
        post_processors.make_mpnet,
    ),
    "NllbTokenizer": TokenizerClass(
        "BPE",
        text_rules.set_nllb,
        ClassTokens(
            _ROBERTA,
            {"lstrip": True, "normalized": True, "special": True},
            _either(*NLLB_CODES),
            null_is_absent=True,
        ),
        post_processors.make_nllb,
        added=("eos",),
    ),
    "Qwen2Tokenizer": _QWEN_CLASS,
    "RemBertTokenizer": TokenizerClass(
        "Unigram",
        text_rules.set_rembert,
        ClassTokens(
            {**_BERT, **_BERT_ENDS, "unk": "<unk>", "pad": "<pad>"}, marks_again=True, keeps_flags=True
        ),
        post_processors.make_rembert,
        files=("sentencepiece.model", "tokenizer.model"),
        build=vocabulary_files.pieces_builder(vocabulary_files.as_they_are(2)),
        find_unknown=unknown_pieces.fixed_unknown(2),
    ),
    "RobertaTokenizer": TokenizerClass(
        "BPE",
        text_rules.set_byte_level,
        ClassTokens(_ROBERTA),
        post_processors.make_roberta,
        files=("vocab.json",),
        build=vocabulary_files.build_byte_pairs,
    ),
    "T5Tokenizer": TokenizerClass(
        "Unigram",
        text_rules.set_t5,
        ClassTokens({"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, choose_more=_add_extra_ids),
        post_processors.template("$A {eos}", "$A {eos} $B {eos}"),
        added=("eos",),
        files=("spiece.model", "tokenizer.model"),
        build=vocabulary_files.pieces_builder(vocabulary_files.arrange_t5),
        find_unknown=unknown_pieces.fixed_unknown(2),
    ),
    "XLMRobertaTokenizer": _XLM_ROBERTA_CLASS,
    "XLNetTokenizer": TokenizerClass(
        "Unigram",
        text_rules.set_xlnet,
        ClassTokens(_XLNET, _STRIPS_LEFT, _either("<eop>", "<eod>")),
        post_processors.make_xlnet,
        files=("spiece.model", "tokenizer.model"),
        build=vocabulary_files.pieces_builder(vocabulary_files.as_they_are(None)),
        find_unknown=unknown_pieces.configured_unknown,
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


def find_rules(files: TokenizerFiles) -> TokenizerClass:
    """Return the rules of the class for a tokenizer.json.

    A class that transformers lacks has no rules, and Llama's is ignored for a byte-level vocabulary.
    """
    if files.class_name == "LlamaTokenizer" and b'"ByteLevel"' in files.content:
        return NO_CLASS
    return CLASSES.get(files.class_name, NO_CLASS)


def refuse_siglip(path: Path) -> UnsupportedModel:
    """Return the refusal of the tokenizer of SigLIP of 2023, whose file is `path`."""
    return UnsupportedModel(
        f"The model's tokenizer class is {SIGLIP_CLASS}, of SigLIP of 2023. transformers lower-cases texts "
        "in Python and normalises them with sentencepiece, which the tokenizers library does not do in quite "
        "the same way: some texts would have other embeddings. Use SigLIP 2 of fixed resolution, such as "
        "google/siglip2-base-patch16-224. If there is a tokenizer.json that others made, and you accept its "
        f"differences, set tokenizer_class in {path.parent / TOKENIZER_CONFIG} to 'PreTrainedTokenizerFast'."
    )


def check_class(name: str, path: Path) -> None:
    """Raise `UnsupportedModel`, which names `path`, if the rules of the class are not supported."""
    if name == SIGLIP_CLASS:
        raise refuse_siglip(path)
    if name in UNKNOWN_CLASSES:
        raise UnsupportedModel(
            f"The model's tokenizer class is {name}, whose rules are not supported. To use {path} "
            "unchanged, set tokenizer_class in tokenizer_config.json to 'PreTrainedTokenizerFast'."
        )
