"""The calls of the tokenizers library for a request: the boundary where what it raises becomes an error.

The library panics on some texts, which is no `Exception`: a pattern may try too many ways to match, a decoder
may cut off more than a token has. A panic changes nothing in a tokenizer, since encoding and decoding only
read it. So the tokenizer answers as before.
"""

from collections.abc import Sequence
from typing import Any

from vecmill.errors import RequestTooLarge
from vecmill.models.tokenizer_file import LONGEST_PIECE
from vecmill.tokenization.refusals import NOT_UNICODE, failures_contained

_NAME = "tokenizer"  # in errors and the log
# A decoder may make some times as much of them.
MOST_DECODED = 2**26


class LibraryCalls:
    """The calls of one `tokenizers.Tokenizer`. Safe for any number of threads.

    They raise `TokenizationFailed` if the library fails.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def encode(self, text: str, *, special: bool, places: bool, keeps_lock: bool = False) -> Any:
        """Return the library's encoding of a text, with special tokens if `special`.

        With `keeps_lock`, no other thread can run meanwhile. Raises `NOT_UNICODE` errors too.
        """
        with failures_contained(_NAME, len(text), NOT_UNICODE):
            if keeps_lock:
                return self._library.encode(text, add_special_tokens=special)
            encode = self._library.encode_batch if places else self._library.encode_batch_fast
            return encode([text], add_special_tokens=special)[0]

    def decode(self, token_ids: Sequence[int], *, skip_special: bool) -> str:
        """Return the text of token ids.

        Raises `RequestTooLarge` if the tokens have more than `MOST_DECODED` characters in all.
        """
        with failures_contained(_NAME, len(token_ids)):
            self._check_decoded(token_ids)
            # Not `decode`, which holds the interpreter lock for seconds.
            texts = self._library.decode_batch([list(token_ids)], skip_special_tokens=skip_special)
        return str(texts[0])

    def _check_decoded(self, token_ids: Sequence[int]) -> None:
        if len(token_ids) * LONGEST_PIECE <= MOST_DECODED:
            return
        spellings = map(self._library.id_to_token, token_ids)
        if sum(len(spelling or "") for spelling in spellings) > MOST_DECODED:
            raise RequestTooLarge(
                f"`input` has token ids of more than {MOST_DECODED} characters in all, which is the most "
                "that is accepted. Send it in parts.",
                field="input",
            )
