r"""Finds positions where a text may be split without a change of its tokens.

A position is a boundary if the tokens of a text are the tokens of the part before it, followed by the tokens
of the part after it. Boundaries are recognised by the characters around a position: a separator (a space,
for example) after a letter, a digit or a punctuation mark, and before a letter or a digit. The rules hold
for these steps of a tokenizer; with any other step no position counts as a boundary:

- Added tokens: they are found in the text first. So no added token may contain a separator, unless it is
  whitespace alone, or take the whitespace beside a letter.
- Normalisers: those that change single characters, or sequences that never continue across a space. Unicode
  normal forms never combine a space, a CJK ideograph or CJK punctuation with the character before it.
  Removing spaces at the beginning of a text must not change its words.
- Pre-tokenizers: those that always begin a word at a separator: splits at whitespace, sentencepiece's
  Metaspace, and the regular expressions of GPT-2, Qwen2 and Llama 3.
- Models: each of them encodes each word alone, unless BPE drops merges at random. If a text is one word whose
  spaces are marks, BPE must have no token with a mark after another character: then no merge reaches from a
  letter over the space after it.

Letters count only if all Unicode versions since 3.2 agree on their category, and if NFKC keeps them.

Source of the rules: tokenizers 0.23 (`normalizers`, `pre_tokenizers`, `tokenizer/added_vocabulary.rs`).
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

# One search holds the interpreter lock for about a millisecond.
SEARCHED_CHARACTERS = 32_768

_IDEOGRAPH = "[\u4e00-\u9fa5]"
# Full stops and commas of Chinese and Japanese, and full-width marks.
_CJK_PUNCTUATION = "\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
_LETTER = r"[^\W_]"
_MARKS = r"[,.;:!?)]"
_SPACED = rf"(?P<stable>{_LETTER}|{_MARKS})(?= {_LETTER}"
_SPACE_MARK = "\u2581"  # sentencepiece's

_WORD_SPLITS = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit"})
_INNER_SPLITS = frozenset({"Digits", "Punctuation"})
_NORMALIZERS = frozenset(
    {
        "BertNormalizer",
        "Lowercase",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Nmt",
        "Precompiled",
        "Strip",
        "StripAccents",
    }
)
_SPACE_KEEPERS = frozenset({"Lowercase", "NFC", "NFD", "NFKC", "NFKD"})
_REPLACED = ({"String": "``"}, {"String": "''"}, {"Regex": " {2,}"})
_MADE_SPACES = {"Regex": r"\s{2,}|[\n\r\t]"}
_BYTE_LEVEL_WORDS = frozenset(
    {
        # GPT-2
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # Qwen2
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        # Llama 3
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
)


# Regular expressions that read a text once. Others may try a text of 30 letters for half a second.
_QUICK_PATTERNS = frozenset({*_BYTE_LEVEL_WORDS, " {2,}", r"\s{2,}|[\n\r\t]"})


def has_quick_patterns(library: Any) -> bool:
    """Return whether each regular expression of a `tokenizers.Tokenizer` is one that reads a text once."""
    steps = [*_steps(library.normalizer), *_steps(library.pre_tokenizer)]
    patterns = [step["pattern"] for step in steps if isinstance(step.get("pattern"), Mapping)]
    return all(pattern["Regex"] in _QUICK_PATTERNS for pattern in patterns if "Regex" in pattern)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The boundaries of texts for one tokenizer.

    `pattern` matches the character before a boundary. Its group `stable` is set if the character, and the
    character after the separator, must be checked.
    """

    pattern: re.Pattern[str]

    @classmethod
    def of(cls, library: Any) -> Self | None:
        """Return the boundaries for a `tokenizers.Tokenizer`, `None` if no rule is known for its steps."""
        if getattr(library.model, "dropout", None):
            return None
        normalizers, splits = _steps(library.normalizer), _steps(library.pre_tokenizer)
        tokens = library.get_added_tokens_decoder().values()
        if _marks_spaces(normalizers, splits, [token.content for token in tokens]):
            pattern = f"{_SPACED})" if _keeps_words_apart(library) else None
        else:
            ends = any(re.search(f"{_LETTER}$", token.content) for token in tokens)
            is_known = all(map(_is_local, normalizers))
            pattern = _choose_pattern(normalizers, splits, ends) if is_known else None
        keeps_spaces = all(stage["type"] in _SPACE_KEEPERS for stage in normalizers)
        may_cross = any(_may_cross(token, keeps_spaces) for token in tokens)
        return None if pattern is None or may_cross else cls(re.compile(pattern))

    def first(self, text: str, start: int, end: int) -> int | None:
        """Return the first boundary in `start + 1 .. end - 1`, `None` if there is none."""
        for window in range(start, end, SEARCHED_CHARACTERS):
            stop = min(window + SEARCHED_CHARACTERS, end)
            found = next((place for place in self._all(text, window, stop) if place < end), None)
            if found is not None:
                return found
        return None

    def last(self, text: str, start: int, end: int) -> int | None:
        """Return the last boundary in `start + 1 .. end - 1`, `None` if there is none."""
        for window in range(end, start, -SEARCHED_CHARACTERS):
            begin = max(start, window - SEARCHED_CHARACTERS)
            places = [place for place in self._all(text, begin, window) if place < end]
            if places:
                return places[-1]
        return None

    def _all(self, text: str, start: int, stop: int) -> Iterator[int]:
        # The pattern looks at two characters after the character that it matches.
        for match in self.pattern.finditer(text, start, min(stop + 2, len(text))):
            place = match.start() + 1
            needs_check = match["stable"] is not None
            if not needs_check or (_is_stable(text[place - 1]) and _is_stable(text[place + 1])):
                yield place


def _steps(part: Any) -> list[Mapping[str, Any]]:
    """Return the settings of a normaliser or pre-tokenizer, or of the members of a sequence."""
    if part is None:
        return []
    return list(_flatten(json.loads(part.__getstate__())))


def _flatten(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    members: Iterable[Mapping[str, Any]] | None = state.get("normalizers", state.get("pretokenizers"))
    if members is None:
        yield state
        return
    for member in members:
        yield from _flatten(member)


def _is_local(normalizer: Mapping[str, Any]) -> bool:
    if normalizer["type"] == "Replace":
        is_space = normalizer["pattern"] == _MADE_SPACES and normalizer["content"] == " "
        return is_space or normalizer["pattern"] in _REPLACED
    return normalizer["type"] in _NORMALIZERS


def _marks_spaces(
    normalizers: Sequence[Mapping[str, Any]], splits: Sequence[Mapping[str, Any]], added: Sequence[str]
) -> bool:
    """Return whether spaces become marks, and the text stays one word, as in Gemma, Llama and Mistral.

    `added` are the added tokens. A mark may be put before a text, and before what follows an added token.
    """
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE_MARK}
    if not normalizers:
        return [(split["type"], split.get("split"), split.get("replacement")) for split in splits] == [
            ("Metaspace", False, _SPACE_MARK)
        ]
    # A split at spaces finds none.
    is_whole = all(split["type"] == "Split" and split["pattern"] == {"String": " "} for split in splits)
    if normalizers[0] == {"type": "Prepend", "prepend": _SPACE_MARK}:
        # Also before a space that follows an added token, which a piece that begins there does not show.
        begins_piece = re.compile(rf"(?:{_LETTER}|{_MARKS})$")
        return list(normalizers[1:]) == [replaced] and is_whole and not any(map(begins_piece.search, added))
    return list(normalizers) == [replaced] and is_whole


def _keeps_words_apart(library: Any) -> bool:
    """Return whether BPE can join nothing with the space after it, since no token has a space there."""
    model = library.model
    if type(model).__name__ != "BPE" or model.token_to_id(_SPACE_MARK) is None:
        return False
    # These depend on where a word ends, and on whole words.
    is_plain = not (model.ignore_merges or model.end_of_word_suffix or model.continuing_subword_prefix)
    inner = re.compile(f"[^{_SPACE_MARK}]{_SPACE_MARK}")
    if not is_plain:
        return False
    # One by one, since all at once would hold the interpreter lock for a second for each million tokens.
    size = library.get_vocab_size(with_added_tokens=False)
    tokens = [model.id_to_token(number) for number in range(size)]
    return None not in tokens and not any(inner.search(token) for token in tokens)


def _choose_pattern(
    normalizers: Sequence[Mapping[str, Any]], splits: Sequence[Mapping[str, Any]], added_ends: bool
) -> str | None:
    """Return the pattern for these steps, given whether an added token ends with a letter."""
    if not splits or not all(map(_is_known_split, splits)):
        return None
    ideographs = any(stage.get("handle_chinese_chars") for stage in normalizers)
    if splits[0]["type"] in _WORD_SPLITS:
        between = rf"|{_IDEOGRAPH}(?={_IDEOGRAPH})" if ideographs else ""
        return rf"{_SPACED}|\n{_LETTER}){between}"
    # Later steps only split words further. After `ByteLevel`, which replaces spaces, none finds a space.
    words = next((split for split in splits if split["type"] not in _INNER_SPLITS), {})
    # Spaces around ideographs would add to a separator, and become tokens.
    if ideographs or (_strips_beginnings(normalizers) and words.get("prepend_scheme") != "always"):
        return None
    if words.get("type") == "Metaspace":
        return f"{_SPACED})"
    if words.get("type") != "Split" and not words.get("use_regex"):
        return None
    # What follows an added token gets a space before it, except where it begins with one.
    if added_ends and any(split.get("add_prefix_space") for split in splits):
        return f"{_SPACED})"
    # A newline after a punctuation mark belongs to the same word as the mark.
    return rf"{_SPACED}|(?<={_LETTER})[\n{_CJK_PUNCTUATION}]{_LETTER})"


def _strips_beginnings(normalizers: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether spaces at the beginning of a text are removed, and those after an added token.

    The first word then lacks its space, unless the pre-tokenizer puts one before it. A piece that begins
    with a letter keeps that space.
    """
    return any(stage["type"] == "Strip" and stage["strip_left"] for stage in normalizers)


def _is_known_split(split: Mapping[str, Any]) -> bool:
    kind = split["type"]
    if kind == "Metaspace":
        return bool(split.get("split", True))
    if kind == "Split":
        is_plain = split["behavior"] in ("Isolated", "Removed") and split.get("invert", False) is (
            split["behavior"] == "Removed"
        )
        return is_plain and split["pattern"].get("Regex") in _BYTE_LEVEL_WORDS
    return kind == "ByteLevel" or kind in _WORD_SPLITS or kind in _INNER_SPLITS


def _may_cross(token: Any, keeps_spaces: bool) -> bool:
    """Return whether an added token may lie on both sides of a boundary, or depend on what lies there.

    `keeps_spaces` tells whether the normalisers leave whitespace as it is, or replace single characters.
    """
    content: str = token.content
    if token.single_word or (token.normalized and not content.isascii()):
        return True
    if content.isspace():  # GPT-NeoX, ModernBERT and Gemma have tokens for runs of spaces or newlines
        return bool(token.normalized and not keeps_spaces)
    if any(character.isspace() or character in _CJK_PUNCTUATION for character in content):
        return True
    if re.search(_IDEOGRAPH * 2, content):
        return True
    takes_right = token.rstrip and re.search(rf"(?:{_LETTER}|{_MARKS})$", content)
    return bool(takes_right or (token.lstrip and re.match(_LETTER, content)))


def _is_stable(character: str) -> bool:
    if character.isascii():
        return True
    category = unicodedata.category(character)
    return (
        category in ("Ll", "Lu", "Lo")
        and unicodedata.ucd_3_2_0.category(character) == category
        and unicodedata.normalize("NFKC", character) == character
    )
