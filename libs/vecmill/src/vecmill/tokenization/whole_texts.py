"""Tokenises whole texts, however long, and cuts them into parts that a model can read.

How it works. A text is tokenised once, with its prompt before it, and keeps the place of each token. A part
is a range of its tokens: the model reads the special tokens, those of the prompt, the range, and the special
tokens at the end. So a text of one part has the tokens that it has without any cut, and the parts of a longer
text, joined, are its tokens. Places are counted in Unicode code points, as Python counts characters.

Rule for places: each token begins where the text before it ends. A character of several tokens belongs to the
last of them, and what no token stands for, such as spaces, to the token before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vecmill.errors import RequestTooLarge
from vecmill.tokenization.pieces import Reading, Slices
from vecmill.tokenization.refusals import input_at, refuse_empty
from vecmill.tokenization.token_lists import SpecialTokens
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import IntArray
from vecmill.values.batch import TokenSequence

# A range of tokens of a text: the first, and the one after the last.
TokenRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a model reads around each part of a text: the tokens `before`, prompt included, and `after`.

    The types are those of these tokens and of the text. `prompt_length` counts the first tokens that belong
    to the prompt, as `TokenSequence` does.
    """

    before: IntArray
    after: IntArray
    before_types: IntArray
    after_types: IntArray
    text_type: int
    prompt_length: int

    @classmethod
    def of(cls, special: SpecialTokens, prompt_ids: IntArray, prompt_length: int, adapter: int) -> "Frame":
        """Make the frame of a text whose prompt has these ids and this adapter."""
        before = np.concatenate([np.array(special.before.ids, np.int64), prompt_ids])
        after = np.array(special.after.ids, np.int64)
        if adapter:
            return cls(
                before,
                after,
                np.full(len(before), adapter),
                np.full(len(after), adapter),
                adapter,
                prompt_length,
            )
        types = [*special.before.types, *[special.text_type] * len(prompt_ids)]
        before_types, after_types = np.array(types, np.int64), np.array(special.after.types, np.int64)
        return cls(before, after, before_types, after_types, special.text_type, prompt_length)

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


@dataclass(frozen=True, slots=True)
class WholeText:
    """All tokens of a text, without a limit on their number.

    `ids` (tokens,) int64 are without special tokens and prompt. `bounds` (tokens + 1,) int64 are the places
    where tokens begin, and the end of the text. `place` is the place of a part.
    `lasts` (tokens,) int64 is the place of the last character of each token, -1 for tokens of no character.
    """

    ids: IntArray
    bounds: IntArray
    lasts: IntArray
    frame: Frame

    def __len__(self) -> int:
        return len(self.ids)

    def sequence(self, part: TokenRange) -> TokenSequence:
        """Return what the model reads for a part of the text."""
        first, last = part
        frame = self.frame
        ids = np.concatenate([frame.before, self.ids[first:last], frame.after])
        types = np.concatenate(
            [frame.before_types, np.full(last - first, frame.text_type), frame.after_types]
        )
        return TokenSequence.of(
            ids.tolist(),
            types.tolist() if types.any() else None,
            prompt_length=min(frame.prompt_length, len(ids)),
        )

    def place(self, part: TokenRange) -> tuple[int, int]:
        """Return the start and the end of a part in the text."""
        first, last = part
        return int(self.bounds[first]) if first else 0, int(self.bounds[last])


def read_in_slices(
    tokenizer: Tokenizer, texts: Sequence[str], *, prompt: str, adapter: int = 0, most_tokens: int
) -> Slices[list[WholeText]]:
    """Tokenise whole texts in slices, each with `prompt` before it, for the `adapter` of this number.

    Raises `RequestTooLarge` for more than `most_tokens` in all, and `InvalidRequest` for invalid Unicode, and
    for a text without tokens if the model adds none of its own.
    """
    prompt_length = (yield from tokenizer.prompt_length_in_slices(prompt)) if prompt else 0
    found, left = [], most_tokens
    for index, text in enumerate(texts):
        reading = Reading(left + 1, places=True)
        tokens = yield from tokenizer.read_in_slices(prompt + text, input_at(index), reading)
        left -= len(tokens.ids)
        if left < 0:
            raise RequestTooLarge(
                f"`input` has more than {most_tokens} tokens in all, which is the most that is accepted. "
                "Send it in parts.",
                field="input",
            )
        ids, offsets = np.array(tokens.ids, np.int64), tokens.offsets - len(prompt)
        # A token that reaches into the text is the text's.
        in_text = np.flatnonzero(offsets[:, 1] > 0)
        first = int(in_text[0]) if len(in_text) else len(ids)
        frame = Frame.of(tokenizer.special, ids[:first], prompt_length, adapter)
        found.append(_place(ids[first:], offsets[first:], len(text), frame, tokenizer.stand_in, index))
    return found


def _place(
    ids: IntArray, offsets: IntArray, size: int, frame: Frame, stand_in: int | None, index: int
) -> WholeText:
    if not len(ids) and not len(frame):
        if stand_in is None:
            refuse_empty(input_at(index))
        ids, offsets = np.array([stand_in], np.int64), np.zeros((1, 2), np.int64)
    starts = np.clip(np.maximum.accumulate(offsets[:, 0]), 0, size)
    bounds = np.concatenate([starts, [size]])
    lasts = np.where(offsets[:, 0] < offsets[:, 1], offsets[:, 1] - 1, -1)
    return WholeText(ids, bounds, lasts, frame)


def count_parts(tokens: int, size: int, overlap: int) -> int:
    """Return the number of parts that `cut_tokens` cuts."""
    return 1 if tokens <= size else 1 + -(-(tokens - size) // (size - overlap))


def cut_tokens(tokens: int, size: int, overlap: int) -> list[TokenRange]:
    """Cut a text into parts of `size` tokens, at least one. Each shares `overlap` tokens with the next.

    The last part may be shorter. A text without tokens is one part without tokens.
    """
    step = size - overlap
    return [
        (number * step, min(number * step + size, tokens))
        for number in range(count_parts(tokens, size, overlap))
    ]
