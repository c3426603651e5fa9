"""Builds tokenizers from tiktoken files: a line for each token, with its bytes in base64 and its rank.

Such a file is the `tokenizer.model` of Llama 3, `tiktoken.model`, or `qwen.tiktoken` of Qwen (version 1). It
has no special tokens, which follow after the tokens of the file.

Source of the rules: transformers 5.23 (`convert_slow_tokenizer.py`, `tokenization_utils_tokenizers.py`),
tiktoken 0.14 (`load.py`), and the published `tokenization_qwen.py` of Qwen.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.directory import FileLimits
from vecmill.tokenization.building.merges import derive_merges
from vecmill.tokenization.building.sentencepieces import MOST_PIECES
from vecmill.tokenization.building.special_tokens import FileTokens, text_of
from vecmill.tokenization.building.text_rules import QWEN_WORDS
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.values.messages import show

_FIRST_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?(?:\n|$)")
_SNIFFED_BYTES = 4_096
# The most ids between the tokens of the file and the last special token, which all become tokens.
_MOST_RESERVED = 2**16

QWEN_FILE = "qwen.tiktoken"
_QWEN_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *(f"<|extra_{number}|>" for number in range(205)),
)
LLAMA_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def is_tiktoken_file(content: bytes) -> bool:
    """Return whether the content of a file begins as a tiktoken file."""
    return _FIRST_LINE.match(content[:_SNIFFED_BYTES]) is not None


def build_tiktoken(files: TokenizerFiles, said: FileTokens) -> Any:
    """Build the `tokenizers.Tokenizer` of a tiktoken file, with the special tokens of the other files.

    The words are those of Llama 3. Raises `CorruptModel`.
    """
    import tokenizers

    ranks = read_ranks(files.path, files.content, files.limits)
    tokenizer = build_byte_level(files.path, ranks, LLAMA_WORDS)
    tokenizer.add_special_tokens(
        [
            tokenizers.AddedToken(token, normalized=False, special=True)
            for token in _list_special(files.path, said, len(ranks))
        ]
    )
    tokenizer.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    return tokenizer


def build_qwen(files: TokenizerFiles) -> Any:
    """Build the `tokenizers.Tokenizer` of Qwen (version 1), whose code numbers the special tokens.

    Raises `CorruptModel`.
    """
    import tokenizers

    ranks = read_ranks(files.path, files.content, files.limits)
    tokenizer = build_byte_level(files.path, ranks, QWEN_WORDS)
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    # The code finds them in the normalised text.
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(token, normalized=True, special=True) for token in _QWEN_SPECIAL]
    )
    return tokenizer


def build_byte_level(path: Path, ranks: Mapping[bytes, int], words: str) -> Any:
    """Build the `tokenizers.Tokenizer` of a byte-level vocabulary, whose words match the pattern `words`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    merges = derive_merges(ranks, path, lambda parts: (ranks[parts[0]], ranks[parts[1]]))
    letters = _letters_of_bytes()

    def spell(token: bytes) -> str:
        return token.decode("latin-1").translate(letters)

    tokenizer = Tokenizer(
        models.BPE(
            vocab={spell(token): rank for token, rank in ranks.items()},
            merges=[(spell(first), spell(second)) for first, second in merges],
            fuse_unk=False,
            ignore_merges=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def read_ranks(path: Path, content: bytes, limits: FileLimits) -> dict[bytes, int]:
    """Return the ranks of the tokens, in order. Raises `CorruptModel` unless they are 0, 1, 2 and so on."""
    if content.count(b"\n") + content.count(b"\r") > min(2 * MOST_PIECES, limits.max_values):
        raise CorruptModel(f"{path} has more than {MOST_PIECES} lines, the limit for a vocabulary.")
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line:
            continue
        text, _, rank = line.partition(b" ")
        try:
            token = base64.b64decode(text, validate=True)
        except binascii.Error:
            token = b""
        if not token or token in ranks or rank != b"%d" % len(ranks):
            raise CorruptModel(
                f"{path}: line {number} must have a new token in base64 and the rank {len(ranks)}, but is "
                f"{show(line)}. Download the model again."
            )
        ranks[token] = len(ranks)
    if not ranks:
        raise CorruptModel(f"{path} has no tokens. Download the model again.")
    return ranks


def _list_special(path: Path, said: FileTokens, count: int) -> list[str]:
    """Return the special tokens after the `count` tokens of a file, in the order of their ids.

    An id below that of an added token is reserved if no token has it.
    """
    added = {number: token.content for number, token in said.listed}
    last = max(added, default=-1)
    if last >= count + _MOST_RESERVED:
        raise CorruptModel(
            f"{path} has {count} tokens, but the id of {show(added[last])}, an added token, is {last}. "
            "Download the model again."
        )
    named = [added.get(number, f"<|reserved_token_{number}|>") for number in range(count, last + 1)]
    return [*named, *(text for text in map(text_of, said.more) if text not in named)]


def _letters_of_bytes() -> dict[int, str]:
    """Return the letter that byte-level vocabularies have for each byte, as GPT-2 does."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}
