"""Finds the ends of sentences in a text, and cuts its tokens there where that is possible.

Rule. A sentence ends after a full stop, an exclamation or question mark, or their like in other scripts, with
the closing quotes and brackets behind it, where white space follows. After the marks of Chinese and Japanese
no space is needed. A full stop ends none if a lower-case letter follows, or if a single letter is before it,
as in initials. An empty line ends a sentence too. That is a rule for prose without a dictionary: after "Dr."
it sees an end that is none, which costs no more than a chunk that ends early.

No pattern tries a text twice from the same place: a run of marks is tried from its beginning alone.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from vecmill.tokenization.whole_texts import TokenRange
from vecmill.values.aliases import IntArray

_CLOSING = r"""["'”’»)\]]*+"""
_END = re.compile(
    # Marks before white space, unless a lower-case letter follows.
    rf"(?<![.!?…])(?:(?<!\b[^\W\d_])\.|[!?…؟۔।॥።။។])[.!?…]*+{_CLOSING}(?P<space>\s++)(?![a-zß-öø-ÿ])"
    # Marks that need no space.
    r"|[。！？｡]++[」』”’）】》〉]*+(?P<wide>\s*+)"
    r"|(?P<line>\n[^\S\n]*+\n\s*+)"
)


def find_sentence_ends(text: str, bounds: IntArray) -> list[int]:
    """Return the tokens that begin a sentence, in order, of a text whose tokens begin at `bounds`.

    `bounds` (tokens + 1,) are those of `WholeText`. The first token and the end of the text are left out.
    """
    spaces = np.array([found.span(found.lastgroup or 0) for found in _END.finditer(text)], np.int64)
    if not len(spaces):
        return []
    tokens = np.searchsorted(bounds, spaces[:, 0])  # the first that begins behind the marks
    begins = bounds[np.minimum(tokens, len(bounds) - 1)] <= spaces[:, 1]
    is_inner = (tokens > 0) & (tokens < len(bounds) - 1)
    return [int(token) for token in np.unique(tokens[begins & is_inner])]


def cut_at_sentences(tokens: int, size: int, overlap: int, ends: Sequence[int]) -> list[TokenRange]:
    """Cut a text into parts of at most `size` tokens, which end at `ends` where they can.

    Each part has as many whole sentences as fit; a sentence that is longer than a part is cut by its tokens.
    Each shares at most `overlap` tokens with the next: whole sentences, or tokens if no sentence is as short.
    There are at most twice as many parts as `cut_tokens` cuts.
    """
    parts: list[TokenRange] = []
    first = 0
    while first + size < tokens:
        last = first + size
        fitting = bisect_right(ends, last) - 1
        if fitting >= 0 and ends[fitting] > first + overlap:
            last = ends[fitting]
        parts.append((first, last))
        shared = bisect_left(ends, last - overlap)
        is_whole = shared < len(ends) and ends[shared] < last
        first = ends[shared] if is_whole else last - overlap
    return [*parts, (first, tokens)]
