"""Tells whether the files of a tokenizer make other tokens of texts than in earlier versions.

Those read little of what stands beside tokenizer.json, and kept white space at the end of word pieces. What
they kept for such a model must not be read any more, so its description has a digest of the changes, which is
part of its fingerprint. For other models nothing changes. All this is known without building a tokenizer,
since every start asks for it.
"""

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from vecmill.models.directory import check_values
from vecmill.models.space import digest_of
from vecmill.models.tokenizer_file import SPECIAL_TOKENS_MAP, read_vocabulary
from vecmill.tokenization.building.class_names import find_class
from vecmill.tokenization.building.classes import CLASSES, NO_CLASS, TokenizerClass, find_rules
from vecmill.tokenization.building.sentencepieces import read_sentencepieces
from vecmill.tokenization.building.special_tokens import (
    ROLES,
    FileTokens,
    MergedTokens,
    list_own_tokens,
    read_tokens,
    text_of,
)
from vecmill.tokenization.building.tiktoken_files import is_tiktoken_file
from vecmill.tokenization.building.tokenizer_files import TOKENIZER_FILE, TokenizerFiles, find_limits
from vecmill.tokenization.building.unknown_pieces import read_unknown
from vecmill.tokenization.building.vocabulary_files import WHITE_SPACE

if TYPE_CHECKING:
    from tokenizers import AddedToken

    from vecmill.models.description import ModelDescription

logger = logging.getLogger(__name__)

# The flags of a token, and those of a special token without further flags.
_Flags = tuple[bool, ...]
_States = dict[str, _Flags]
_PLAIN: _Flags = (False, False, False, False, True)
_NORMALIZED_MASK = {"lstrip": True, "normalized": True}
_LISTS = ("extra_special_tokens", "additional_special_tokens")
# Classes whose own further special tokens were marked in a tokenizer.json, and with vocabulary files.
_MARKED_MORE = frozenset({"MBart50Tokenizer", "MBartTokenizer", "XLNetTokenizer"})
_ADDED_MORE = frozenset({"MBart50Tokenizer", "MBartTokenizer", "T5Tokenizer"})
_MOST_SEARCHES = 4  # for pieces in the text of tokenizer.json, which takes as long as parsing it for more
_MOST_PLACES = 10_000  # in which one text stands in tokenizer.json
_INDENT = 256  # bytes of white space before a piece
_ID, _SCORE = re.compile(rb"\s*:\s*[0-9]"), re.compile(rb"\s*,\s*[-+0-9]")
_PADDING = re.compile(rb'"pad_token"\s*:\s*("(?:[^"\\]|\\.)*")')


def find_changes(description: "ModelDescription") -> str | None:
    """Return the digest of the changes for a model, `None` if there are none.

    Without `special_tokens` and settings a tokenizer is read from tokenizer.json alone.
    """
    config = description.tokenizer_config
    try:
        files = TokenizerFiles.read(
            description.tokenizer_file,
            find_class(config, description.config),
            config,
            limits=find_limits(description),
            has_class=description.special_tokens or bool(config),
        )
        return digest_changes(files)
    except Exception as error:  # whoever builds the tokenizer says what is wrong
        logger.debug("the tokens of %s are not known", description.tokenizer_file, exc_info=error)
        return None


def digest_changes(files: TokenizerFiles) -> str | None:
    """Return a digest of what changed in the tokens of these files since earlier versions; `None` if nothing.

    Raises `CorruptModel` if a file is broken.
    """
    if not files.has_class:
        return None
    is_file = files.name == TOKENIZER_FILE
    if is_file:
        check_values(files.path, files.content, files.limits)
    known = find_rules(files) if is_file else CLASSES.get(files.class_name, NO_CLASS)
    said = read_tokens(files)
    if is_file:
        tokens = said.merge(known.tokens, padding=_find_padding(files.content))
        before, after = _read_before(files, known), _merge_file(files, known, tokens)
        others = [*_list_other_settings(files, known, tokens)]
    else:
        # Without the pieces of a sentencepiece model, which are parsed later.
        tokens = said.merge(known.tokens, pieces=[] if files.name.endswith(".model") else None)
        before, after = _convert_before(files, known, said), _apply({}, tokens, known)
        others = [*_list_other_pieces(files, known, said, tokens), *_list_other_lines(files)]
    for states in (before, after):
        states.pop("", None)  # the library passes over it
    changed = {text for text in {*before, *after} if before.get(text) != after.get(text)}
    shared = [[text for text in states if text in before and text in after] for states in (before, after)]
    order = shared[1] if is_file and shared[0] != shared[1] else []
    if not changed and not others and not order:
        return None
    return digest_of([{text: after.get(text) for text in changed}, others, order])


def _flags_of(token: "AddedToken") -> _Flags:
    return (token.single_word, token.lstrip, token.rstrip, token.normalized, token.special)


def _apply(states: _States, tokens: MergedTokens, known: TokenizerClass) -> _States:
    """Return the flags of all added tokens, after those in `states`, which the tokenizer has already."""
    states = {**states, **{each.content: _flags_of(each) for each in tokens.list_additions(states)}}
    return states | {each.content: _flags_of(each) for each in tokens.list_again(known.tokens)}


def _merge_file(files: TokenizerFiles, known: TokenizerClass, tokens: MergedTokens) -> _States:
    own = {} if known.apply is not None else _own_states(files)
    return _apply(own, tokens, known)


def _own_states(files: TokenizerFiles) -> _States:
    return {token.content: _flags_of(token) for _, token in list_own_tokens(files)}


def _read_before(files: TokenizerFiles, known: TokenizerClass) -> _States:
    """Return the flags as they were read of tokenizer.json, with the named tokens of its vocabulary."""
    own = _own_states(files)
    named = {text for text in _name_before(files.class_name, files.config, known) if text not in own}
    return {**own, **dict.fromkeys(_find_pieces(files, named), _PLAIN)}


def _name_before(name: str, config: Mapping[str, Any], known: TokenizerClass) -> Iterator[str]:
    """Yield the special tokens that were marked in a vocabulary."""
    listed = [config.get(key) or () for key in _LISTS]
    values = [value for key, value in config.items() if key.endswith("_token")]
    for group in listed:
        values += [*group.values()] if isinstance(group, Mapping) else [*group]
    if name in _MARKED_MORE and known.tokens.choose_more is not None and not _lists_more(config):
        values += known.tokens.choose_more(None, config) or []
    for value in values:
        text = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(text, str):
            yield text


def _lists_more(config: Mapping[str, Any]) -> bool:
    return any(key in config and not isinstance(config[key], Mapping) for key in _LISTS)


def _convert_before(files: TokenizerFiles, known: TokenizerClass, said: FileTokens) -> _States:
    """Return the flags as they were merged for vocabulary files, without the pieces of sentencepiece."""
    states = {token.content: _flags_of(token) for _, token in said.listed}
    raw = {**files.config, **files.read_object(SPECIAL_TOKENS_MAP)}
    named, names = said.name_roles(known.tokens), ("single_word", "lstrip", "rstrip", "normalized")
    for role in ROLES:
        key = f"{role}_token"
        if key not in named:
            continue
        text, value = text_of(named[key]), raw.get(key)
        flags = value if isinstance(value, Mapping) else {}
        if not flags and text in states:
            states[text] = (*states[text][:4], True)
            continue
        if not flags and role == "mask" and known.tokens.mask:
            flags = {"lstrip": True} if "special" in known.tokens.mask else _NORMALIZED_MASK
        states[text] = (*(bool(flags.get(name, False)) for name in names), True)
    more = [token for key in _LISTS for token in _values(raw.get(key))]
    if files.class_name in _ADDED_MORE and known.tokens.choose_more and not _lists_more(files.config):
        more += known.tokens.choose_more(None, files.config) or []
    for token in more:
        flags = token if isinstance(token, Mapping) else {"normalized": False}
        text = token["content"] if isinstance(token, Mapping) else token
        normalized = bool(flags.get("normalized", False))
        states[text] = (*(bool(flags.get(name, False)) for name in names[:3]), normalized, True)
    return states


def _values(group: Any) -> list[Any]:
    return list(group.values() if isinstance(group, Mapping) else group or ())


def _list_other_settings(
    files: TokenizerFiles, known: TokenizerClass, tokens: MergedTokens
) -> Iterator[list[Any]]:
    """Yield what else of the class was taken from tokenizer.json or tokenizer_config.json alone."""
    if known.find_unknown is not None:
        number = known.find_unknown(files.content, tokens.settings)
        if read_unknown(files.content) != number:
            yield ["unknown piece", number]


def _list_other_pieces(
    files: TokenizerFiles, known: TokenizerClass, said: FileTokens, tokens: MergedTokens
) -> Iterator[list[Any]]:
    """Yield what pieces of a sentencepiece model change, or have changed in them."""
    if not files.name.endswith(".model") or is_tiktoken_file(files.content):
        return
    has_pieces, had_pieces = not said.lists_more, not _lists_more(files.config)
    if has_pieces != had_pieces:
        yield ["pieces", has_pieces]
    if known.build is None and said.listed:
        pieces = [piece for piece, _ in read_sentencepieces(files.path, files.content).pieces]
        renamed = {number: token.content for number, token in said.listed if number < len(pieces)}
        yield from (["renamed", *entry] for entry in renamed.items() if entry[1] not in pieces)
    listed = {token.content for token in tokens.listed}
    for token in tokens.named.values():
        flags = _PLAIN if isinstance(token, str) else (*_flags_of(token)[:4], True)
        text = text_of(token)
        field = b"\n" + bytes([len(text.encode()) & 0x7F]) + text.encode()
        if has_pieces and flags != _PLAIN and text not in listed and field in files.content:
            yield ["marked twice", text, flags]


def _list_other_lines(files: TokenizerFiles) -> Iterator[list[Any]]:
    """Yield the word pieces that had white space at their end."""
    if files.name == "vocab.txt":
        for number, line in enumerate(files.content.decode("utf-8").split("\n")):
            if line != line.rstrip(WHITE_SPACE):
                yield ["line", number]


def _find_padding(content: bytes) -> str | None:
    found = _PADDING.search(content)
    return None if found is None else str(json.loads(found[1]))


def _find_pieces(files: TokenizerFiles, texts: Collection[str]) -> Iterator[str]:
    """Yield those of `texts` that are pieces of the vocabulary in tokenizer.json."""
    if len(texts) <= _MOST_SEARCHES:
        yield from (text for text in texts if _is_piece(files.content, text))
        return
    found = read_vocabulary(files.read_object(files.name), files.path)
    pieces = set(found) if isinstance(found, dict) else {str(piece[0]) for piece in found}
    yield from (text for text in texts if text in pieces)


def _is_piece(content: bytes, text: str) -> bool:
    """Return whether a text is a piece of the vocabulary in tokenizer.json: it has an id, or a score."""
    spellings = {json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()}
    return any(
        _has_number(content, start, start + len(spelling))
        for spelling in spellings
        for start in islice(_find_all(content, spelling), _MOST_PLACES)
    )


def _find_all(content: bytes, spelling: bytes) -> Iterator[int]:
    # Not a pattern of all that may stand around: without a fixed beginning it is tried at every byte, with
    # the interpreter lock.
    start = content.find(spelling)
    while start >= 0:
        yield start
        start = content.find(spelling, start + 1)


def _has_number(content: bytes, start: int, end: int) -> bool:
    if _ID.match(content, end):
        return True
    is_first = content[max(0, start - _INDENT) : start].rstrip().endswith(b"[")
    return is_first and _SCORE.match(content, end) is not None
