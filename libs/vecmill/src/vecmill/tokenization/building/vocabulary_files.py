"""Builds tokenizers from vocabulary files older than tokenizer.json, as transformers' classes do.

    vocab.txt                                 one token per line: BERT
    vocab.json, merges.txt                    byte pairs: RoBERTa, Qwen
    sentencepiece.bpe.model and similar       pieces with scores: XLM-RoBERTa, CamemBERT, ALBERT, DeBERTa, T5

Each class arranges the pieces in its own order. `special_tokens` adds the special tokens of the class.
`classes` applies its other rules.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model, `convert_slow_tokenizer.py` and
`tokenization_utils_base.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.config_fields import (
    MOST_TOKENS,
    check_token_number,
    read_flag,
    read_mapping,
    read_size,
    show,
    show_name,
)
from vecmill.models.directory import FileLimits, find_file, read_file, read_object
from vecmill.models.tokenizer_file import LARGEST_TOKENIZER, TOKENIZER_CONFIG, check_token, read_token
from vecmill.tokenization.building.classes import BERT_CLASSES, apply_class
from vecmill.tokenization.building.sentencepiece_file import read_sentencepieces
from vecmill.tokenization.building.special_tokens import (
    ROLES,
    SPECIAL_TOKENS,
    SpecialTokens,
    add_special_tokens_map,
    find_special_tokens,
    list_more_tokens,
    set_post_processor,
)

ADDED_TOKENS = "added_tokens.json"
MOST_EXTRA_IDS = 10_000
_EXTRA_IDS = 100  # the default of T5
_ID_DIGITS = 10


@dataclass(frozen=True, slots=True)
class VocabularyFile:
    """The path of a vocabulary, and the limits of each file of the tokenizer."""

    path: Path
    limits: FileLimits


@dataclass(frozen=True, slots=True)
class _Converter:
    """The files of a tokenizer class, and the function that builds a tokenizer from them."""

    files: tuple[str, ...]
    make: Callable[["VocabularyFile", SpecialTokens, Mapping[str, Any]], Any]
    mask_strips_left: bool = False  # the default of the mask token's `lstrip`


def convert_vocabulary(
    path: Path, name: str, config: Mapping[str, Any], limits: FileLimits = LARGEST_TOKENIZER
) -> Any:
    """Build the `tokenizers.Tokenizer` of the class `name` from the vocabulary file `path`.

    `config` is the whole tokenizer_config.json, `limits` those of each file. Raises `UnsupportedModel` if the
    class is not supported or does not read the file, `CorruptModel` if a file is broken.
    """
    converter = _CONVERTERS.get(name)
    if converter is None or path.name not in converter.files:
        raise UnsupportedModel(
            f"{path.parent} has {path.name} and no tokenizer.json, from which no tokenizer of the class "
            f"{name or 'that the model has'!r} can be built. Write one with "
            "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
        )
    settings = add_special_tokens_map(path.parent, config)
    special = find_special_tokens(name, settings)
    missing_roles = sorted(set(SPECIAL_TOKENS[name]) - set(special))
    if missing_roles:
        keys = ", ".join(f"{role}_token" for role in missing_roles)
        raise CorruptModel(f"{path.parent / TOKENIZER_CONFIG}: {keys} must be a string.")
    tokenizer = converter.make(VocabularyFile(path, limits), special, config)
    apply_class(tokenizer, name, config, path)
    _add_tokens(tokenizer, path.parent, settings, special, converter)
    set_post_processor(tokenizer, name, config, path)
    return tokenizer


def _add_tokens(
    tokenizer: Any, folder: Path, settings: Mapping[str, Any], special: SpecialTokens, converter: _Converter
) -> None:
    """Add the added tokens in the order of their ids, then the special tokens."""
    numbered = _number_added(folder, settings)
    for _, flags in numbered:
        token = _added_token(flags)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    for role, text in special.items():
        value = settings.get(f"{role}_token")
        default = {"lstrip": role == "mask" and converter.mask_strips_left}
        listed = [token for _, token in numbered if token["content"] == text]
        flags = value if isinstance(value, Mapping) else next(iter(listed), default)
        token = _added_token({"normalized": False, **flags, "content": text, "special": True})
        tokenizer.add_special_tokens([token])
    for name, value in list_more_tokens(settings):
        content = check_token(value, name)
        if content is None:
            continue
        flags = value if isinstance(value, Mapping) else {"content": content, "normalized": False}
        tokenizer.add_special_tokens([_added_token({**flags, "special": True})])


def _number_added(folder: Path, settings: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the ids and the settings of the added tokens, by their ids. Raises `CorruptModel`."""
    key = "added_tokens_decoder"
    numbered: dict[str, Any]
    if settings.get(key) is not None:
        numbered, name = (
            dict(read_mapping(settings, key, file=TOKENIZER_CONFIG)),
            f"{TOKENIZER_CONFIG}: {key}",
        )
    else:
        name = ADDED_TOKENS
        tokens = read_object(folder, ADDED_TOKENS) or {}
        ids = {
            check_token_number(number, f"{name}: {show(token)}"): token for token, number in tokens.items()
        }
        named = {
            read_token(settings, f"{role}_token", TOKENIZER_CONFIG) for role in ROLES
        }  # without defaults
        numbered = {
            str(number): {"content": token, "special": token in named, "normalized": token not in named}
            for number, token in ids.items()
        }
    found = []
    for number, token in numbered.items():
        if not (number.isascii() and number.isdecimal() and len(number) < _ID_DIGITS):
            raise CorruptModel(f"{name}: the key {show(number)} is not the id of a token.")
        if not isinstance(token, Mapping) or check_token(token, f"{name}.{number}.content") is None:
            raise CorruptModel(f"{name}.{number}: content must be a string.")
        found.append((int(number), token))
    return sorted(found, key=lambda entry: entry[0])


def _added_token(settings: Mapping[str, Any]) -> Any:
    import tokenizers

    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    name = f"{TOKENIZER_CONFIG}: the token {show(settings['content'])}"
    flags = {flag: read_flag(settings, flag, default=False, file=name) for flag in names if flag in settings}
    return tokenizers.AddedToken(settings["content"], **flags)


# Vocabularies


def _make_word_pieces(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    import tokenizers

    path = file.path
    try:
        lines = read_lines(path, file.limits)
    except ValueError as error:
        raise CorruptModel(
            f"{path} cannot be read as a vocabulary: {one_line(error)}. Download the model again."
        ) from error
    vocabulary = {token: number for number, token in enumerate(lines)}
    missing = sorted(
        f"{show_name(token)} ({role}_token)" for role, token in special.items() if token not in vocabulary
    )
    if missing:
        raise CorruptModel(f"{path} lacks {', '.join(missing)}. Download the model again.")
    return tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=special["unk"]))


def _make_byte_pairs(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    import tokenizers

    path = file.path
    vocabulary = _read_numbers(file)
    merges_file = find_file(path.parent, "merges.txt")
    if merges_file is None:
        raise CorruptModel(f"{path.parent / 'merges.txt'} is missing. Download the model again.")
    try:
        lines = read_lines(merges_file, file.limits)
        merges: Any = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        model = tokenizers.models.BPE(
            vocab=vocabulary,
            merges=merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
            fuse_unk=False,
        )
    except CorruptModel:
        raise
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(
            f"{merges_file} does not fit {path.name}: {one_line(error)}. Download the model again."
        ) from error
    return tokenizers.Tokenizer(model)


def read_lines(path: Path, limits: FileLimits) -> list[str]:
    """Return the lines of a vocabulary. Raises `CorruptModel`, or `ValueError` if the file is not UTF-8."""
    content = read_file(path, limits.max_bytes)
    if content.count(b"\n") > limits.max_values:
        raise CorruptModel(f"{path} has more than {limits.max_values} lines, the limit for such a file.")
    return content.decode("utf-8").removesuffix("\n").split("\n")


def _read_numbers(file: VocabularyFile) -> dict[str, int]:
    """Read a JSON object of token -> id. Raises `CorruptModel` if the file is broken."""
    path = file.path
    document = read_object(path.parent, path.name, limits=file.limits) or {}
    if not document or not all(_is_token_id(number) for number in document.values()):
        raise CorruptModel(f"{path} must number the tokens of a vocabulary. Download the model again.")
    return document


def _is_token_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_TOKENS


Pieces = list[tuple[str, float]]


def _make_pieces(arrange: Callable[[Pieces, SpecialTokens, Mapping[str, Any]], tuple[Pieces, int]]) -> Any:
    """Return a builder of unigram tokenizers; `arrange` returns the pieces and the unknown token's id."""

    def make(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        import tokenizers

        path = file.path
        found = read_sentencepieces(path, file.limits.max_bytes)
        if not found.is_unigram:
            raise UnsupportedModel(f"{path}: only unigram models of sentencepiece are supported.")
        pieces, unknown = arrange(list(found.pieces), special, config)
        tokenizer = tokenizers.Tokenizer(
            tokenizers.models.Unigram(vocab=pieces, unk_id=unknown, byte_fallback=False)
        )
        if found.charsmap is not None:
            tokenizer.normalizer = tokenizers.normalizers.Precompiled(found.charsmap)
        added = [*found.added, *(piece for piece, _ in pieces if piece.startswith("<extra_id_"))]
        tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in added])
        return tokenizer

    return make


def _arrange_roberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    first = [(special[role], 0.0) for role in ("bos", "pad", "eos", "unk")]
    return [*first, *pieces[3:], (special["mask"], 0.0)], 3


def _arrange_camembert(
    pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]
) -> tuple[Pieces, int]:
    first = [
        ("<s>NOTUSED", 0.0),
        (special["pad"], 0.0),
        ("</s>NOTUSED", 0.0),
        (special["unk"], 0.0),
        ("<unk>NOTUSED", -100.0),
    ]
    return [*first, *pieces[1:], (special["mask"], 0.0)], 3


def _arrange_albert(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    return pieces, 1


def _arrange_deberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    return pieces, next((number for number, (piece, _) in enumerate(pieces) if piece == special["unk"]), 1)


def _arrange_t5(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    count = read_size(config, "extra_ids", _EXTRA_IDS, least=0, most=MOST_EXTRA_IDS, file=TOKENIZER_CONFIG)
    return [*pieces, *((f"<extra_id_{number}>", 0.0) for number in reversed(range(count)))], 2


_PIECES_FILES = ("sentencepiece.bpe.model",)

_CONVERTERS: Mapping[str, _Converter] = MappingProxyType(
    {
        **dict.fromkeys(sorted(BERT_CLASSES), _Converter(("vocab.txt",), _make_word_pieces)),
        "RobertaTokenizer": _Converter(("vocab.json",), _make_byte_pairs),
        "Qwen2Tokenizer": _Converter(("vocab.json",), _make_byte_pairs),
        "XLMRobertaTokenizer": _Converter(_PIECES_FILES, _make_pieces(_arrange_roberta)),
        "CamembertTokenizer": _Converter(
            _PIECES_FILES, _make_pieces(_arrange_camembert), mask_strips_left=True
        ),
        "AlbertTokenizer": _Converter(("spiece.model",), _make_pieces(_arrange_albert)),
        "DebertaV2Tokenizer": _Converter(("spm.model",), _make_pieces(_arrange_deberta)),
        "T5Tokenizer": _Converter(("spiece.model",), _make_pieces(_arrange_t5)),
    }
)
VOCABULARY_FILES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
