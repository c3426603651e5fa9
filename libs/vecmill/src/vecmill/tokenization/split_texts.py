"""The tokens of whole texts, and texts that are cut after a number of tokens."""

from collections.abc import Sequence

from vecmill.errors import RequestTooLarge
from vecmill.results import Tokens
from vecmill.tokenization.pieces import Reading, Slices
from vecmill.tokenization.refusals import input_at
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.cuts import TextCut, make_cuts


def split_in_slices(
    tokenizer: Tokenizer, texts: Sequence[str], *, special: bool, max_tokens: int | None = None
) -> Slices[tuple[Tokens, ...]]:
    """Return all tokens of each text, without truncation, in slices; with `special` add special tokens.

    Raises `RequestTooLarge` for more than `max_tokens` in all.
    """
    found, count = [], 0
    for index, text in enumerate(texts):
        room = None if max_tokens is None else max_tokens - count + 1
        tokens = yield from tokenizer.read_in_slices(
            text, input_at(index), Reading(room, places=True), special=special
        )
        count += len(tokens.ids)
        if max_tokens is not None and count > max_tokens:
            raise RequestTooLarge(
                f"`input` has more than {max_tokens} tokens in all, which is the most that is accepted. "
                "Send it in parts.",
                field="input",
            )
        found.append(Tokens.of(tokens.ids, tokens.words, tokens.is_special, tokens.offsets))
    return tuple(found)


def cut_texts_in_slices(
    tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int
) -> Slices[list[tuple[str, tuple[TextCut, ...]]]]:
    """Cut each text after its token number `max_tokens`, special tokens not counted, in slices.

    Returns the beginning of each text, and what was cut off.
    """
    found = []
    reading = Reading(max_tokens + 1, places=True, budget=tokenizer.make_budget())
    for index, text in enumerate(texts):
        tokens = yield from tokenizer.read_in_slices(text, input_at(index), reading)
        excess = len(tokens.ids) - max_tokens
        kept = text[: int(tokens.offsets[max_tokens - 1, 1])] if excess > 0 else text
        found.append((kept, make_cuts(excess, tokens.parts_unread)))
    return found
