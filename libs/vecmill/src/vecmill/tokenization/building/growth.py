"""Bounds how much longer a tokenizer may make a text or its tokens, before any of its stages runs.

A normaliser that replaces each character by a thousand, four times in a row, would take all memory of the
process. So a tokenizer is refused if its stages may make a text more than `MOST_GROWTH` times as long.

The bound is the product of what the stages may do. Unicode's normal forms count once, however many there are:
all of them have the same full decomposition, so lengths are those of the decomposed text. The tables of
sentencepiece and the other stages count by what they make of decomposed texts. ALBERT, for example, has NFKD
and a table of NFKC, which together make 18 characters of one at most.

Source of what the stages do: tokenizers 0.23 (`normalizers`, `pre_tokenizers`, `processors`, `decoders`).
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from vecmill.errors import UnsupportedModel
from vecmill.tokenization.building.charsmaps import list_replacements

# Published tokenizers reach 90: NFKC makes 18 characters of one, which are 4 bytes each in a byte-level
# tokenizer, which may put a space before each.
MOST_GROWTH = 128
# Of the tokens' characters by a decoder. Published ones reach 2, with a space before each token.
MOST_DECODED_GROWTH = 8
MOST_STAGES = 256
# That a template adds to a text or a pair. Published ones add up to ten.
MOST_SPECIAL_TOKENS = 256

State = Mapping[str, Any]
Weigh = Callable[[str], int]

# What one character may become at most: U+FDFA in NFKD, and U+1F82 in NFD.
_COMPATIBLE_GROWTH, _CANONICAL_GROWTH = 18, 4
_COMPATIBLE = frozenset({"NFKC", "NFKD", "Precompiled"})
_CANONICAL = frozenset({"NFC", "NFD", "Lowercase", "BertNormalizer"})  # small letters decompose alike
# The bytes of a character, and the decomposition of one of the characters that stand for bytes.
_CHARACTER_BYTES, _BYTE_GROWTH = 4, 3
_MEMBERS = ("normalizers", "pretokenizers", "processors", "decoders")


def check_growth(tokenizer: Any, path: Path) -> None:
    """Raise `UnsupportedModel`, which names the file `path`, if a text or its tokens may grow too much."""
    growth = check_normalizer(tokenizer.normalizer, path)
    splits, decoder = Part("pre_tokenizer", path), Part("decoder", path, MOST_DECODED_GROWTH)
    splits.check(_stages(tokenizer.pre_tokenizer), _pre_tokenizer_growth, growth)
    decoder.check(_stages(tokenizer.decoder), _decoder_growth)
    templates = _stages(tokenizer.post_processor)
    Part("post_processor", path).check(templates, lambda _: 1)
    for name in ("single", "pair"):
        _check_templates(templates, name, path)


def check_normalizer(normalizer: Any, path: Path) -> float:
    """Return how many times as long a text may become. Raises `UnsupportedModel` if that is too much."""
    stages = _stages(normalizer)
    forms = Forms.of(stages)
    return Part("normalizer", path).check(stages, partial(_normalizer_growth, forms), forms.growth)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the tokenizer in the file `path`, which may make a text at most `most` times as long."""

    name: str
    path: Path
    most: int = MOST_GROWTH

    def check(self, stages: Sequence[State], growth: Callable[[State], float], before: float = 1.0) -> float:
        """Return the growth after all stages, from `before` on. Raises `UnsupportedModel`."""
        if len(stages) > MOST_STAGES:
            raise UnsupportedModel(
                f"{self.path}: the {self.name} has {len(stages)} stages. At most {MOST_STAGES} are supported."
            )
        total = before
        for number, stage in enumerate(stages, 1):
            total *= growth(stage)
            if total > self.most:
                raise UnsupportedModel(
                    f"{self.path}: the {self.name} may make a text {_show(total)} times as long with its "
                    f"stage {number}, {stage['type']}. At most {self.most} times is supported."
                )
        return total


def _show(factor: float) -> str:
    return f"{factor:.0f}" if factor < 1e6 else "a million or more"


@dataclass(frozen=True, slots=True)
class Forms:
    """What the Unicode normal forms of a normaliser do together.

    `growth` is how many characters they may make of one, and `form` the decomposition that all of them leave
    as it is; "" without any. `byte_growth` is what they may make of a character that stands for a byte.
    """

    growth: int
    form: Literal["", "NFD", "NFKD"]
    byte_growth: int = 1

    @classmethod
    def of(cls, stages: Sequence[State]) -> Self:
        """Find the normal forms of a normaliser."""
        kinds = [stage["type"] for stage in stages]
        after_bytes = kinds[kinds.index("ByteLevel") :] if "ByteLevel" in kinds else []
        byte_growth = 1 if (_COMPATIBLE | _CANONICAL).isdisjoint(after_bytes) else _BYTE_GROWTH
        if not _COMPATIBLE.isdisjoint(kinds):
            return cls(_COMPATIBLE_GROWTH, "NFKD", byte_growth)
        if not _CANONICAL.isdisjoint(kinds):
            return cls(_CANONICAL_GROWTH, "NFD", byte_growth)
        return cls(1, "")

    def weigh(self, text: str) -> int:
        """Return the length of the decomposition of a text."""
        return len(unicodedata.normalize(self.form, text)) if self.form else len(text)


def _stages(part: Any) -> list[State]:
    """Return the states of a part of the tokenizers library, or of the members of a sequence."""
    return [] if part is None else list(_flatten(json.loads(part.__getstate__())))


def _flatten(state: State) -> Iterator[State]:
    members = next((state[name] for name in _MEMBERS if name in state), None)
    if members is None:
        yield state
        return
    for member in members:
        yield from _flatten(member)


def _normalizer_growth(forms: Forms, stage: State) -> float:
    match stage["type"]:
        case "Replace":
            return _replace_growth(stage, forms.weigh)
        case "Prepend":  # also to each part between two added tokens
            return 1 + forms.weigh(stage["prepend"])
        case "BertNormalizer" if stage["handle_chinese_chars"]:  # a space before and after
            return 3
        case "ByteLevel":
            return _CHARACTER_BYTES * forms.byte_growth
        case "Precompiled":
            return _table_growth(stage, forms.weigh)
    return 1


def _table_growth(stage: State, weigh: Weigh) -> float:
    pairs = list_replacements(stage["precompiled_charsmap"])
    if pairs is None:
        return math.inf
    # What is not in the table stays as it is.
    return max([1.0, *(weigh(made) / max(1, weigh(found)) for found, made in pairs)])


def _replace_growth(stage: State, weigh: Weigh) -> float:
    """Return the growth of a replacement: of each match, or of each place between two characters."""
    made, pattern = weigh(stage["content"]), stage["pattern"]
    if "String" in pattern:
        found = weigh(pattern["String"])
        return max(1.0, made / found) if found else _insertion_growth(made)
    return max(1, made) if _consumes(pattern["Regex"]) else _insertion_growth(made)


def _insertion_growth(made: int) -> int:
    """Return the growth by insertions before, between and after all characters."""
    return 1 + 2 * made


# The parts of a pattern of which it is known whether they may match nothing. All of Oniguruma's other syntax
# is not.
_CLASS = r"\\[pP]\{\^?\w+\}|\\[dDsSwWnrtfv]|\\[^\w\s]"
_PART = re.compile(
    r"(?P<anchor>\^|\$|\\[AbBzZ])"
    rf"|(?P<atom>{_CLASS}|\[\^?(?:{_CLASS}|[^\\\[\]&])+\]|[^\\\[\](){{}}|*+?^$])"
    r"|(?P<open>\(\?i?:|\((?!\?))|(?P<bar>\|)|(?P<close>\))"
    r"|(?P<quantifier>[*+?]|\{\d+(?:,\d*)?\})"
)


@dataclass(slots=True)
class _Group:
    """A group of a pattern: whether an earlier alternative, the last one, and its last item may be empty."""

    is_empty: bool = False
    is_branch_empty: bool = True
    is_item_empty: bool = True

    def add(self, *, is_empty: bool) -> None:
        """Add an item to the last alternative."""
        self.is_branch_empty &= self.is_item_empty
        self.is_item_empty = is_empty

    def end_branch(self) -> None:
        """End the last alternative."""
        self.is_empty |= self.is_branch_empty and self.is_item_empty
        self.is_branch_empty = self.is_item_empty = True


def _consumes(pattern: str) -> bool:
    """Return whether each match of a pattern has at least one character; false if that is not known."""
    groups, end, before = [_Group()], 0, ""
    for part in _PART.finditer(pattern):
        is_closed_too_often = part["close"] is not None and len(groups) == 1
        if part.start() != end or is_closed_too_often:
            return False
        _read_part(part, groups, before)
        end, before = part.end(), part[0]
    groups[0].end_branch()
    return end == len(pattern) and len(groups) == 1 and not groups[0].is_empty


def _read_part(part: re.Match[str], groups: list[_Group], before: str) -> None:
    match part.lastgroup:
        case "anchor" | "atom":
            groups[-1].add(is_empty=part["anchor"] is not None)
        case "open":
            groups.append(_Group())
        case "bar":
            groups[-1].end_branch()
        case "close":
            inner = groups.pop()
            inner.end_branch()
            groups[-1].add(is_empty=inner.is_empty)
        case "quantifier":
            fewest = part[0].strip("{}").partition(",")[0]
            is_lazy = part[0] == "?" and before in ("*", "+", "?")
            groups[-1].is_item_empty |= not (fewest.strip("0?*") or is_lazy)


def _pre_tokenizer_growth(stage: State) -> float:
    match stage["type"]:
        case "ByteLevel":  # a space before each part
            return _CHARACTER_BYTES + bool(stage["add_prefix_space"])
        case "Metaspace" if stage["prepend_scheme"] != "never":
            return 2
    return 1


def _decoder_growth(stage: State) -> float:
    match stage["type"]:
        case "Replace":
            return _replace_growth(stage, len)
        case "WordPiece":  # a space before each token
            return 2
        case "BPEDecoder" if not stage["suffix"]:
            return _insertion_growth(1)
        case "CTC" if not (stage["word_delimiter_token"] and stage["pad_token"]):
            return _insertion_growth(1)
    return 1


def _check_templates(stages: Sequence[State], name: str, path: Path) -> None:
    """Raise `UnsupportedModel` if a template repeats a text, or all of them add too many tokens."""
    added = 0
    for stage in stages:
        if stage["type"] in ("BertProcessing", "RobertaProcessing"):
            added += 4
        for piece in stage.get(name, ()):
            special = piece.get("SpecialToken")
            if special:  # the library panics if there is no such token
                added += len(stage["special_tokens"].get(special["id"], {}).get("ids", ()))
        texts = [piece["Sequence"]["id"] for piece in stage.get(name, ()) if "Sequence" in piece]
        if len(set(texts)) != len(texts):
            raise UnsupportedModel(f"{path}: the post_processor repeats a text, which is not supported.")
    if added > MOST_SPECIAL_TOKENS:
        raise UnsupportedModel(
            f"{path}: the post_processor adds {added} tokens to a text or a pair. At most "
            f"{MOST_SPECIAL_TOKENS} are supported."
        )
