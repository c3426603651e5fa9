"""The policies for inputs that are lists of token ids instead of text.

A list of ids does not identify its tokenizer. The ids that LangChain sends by default are OpenAI's. Most of
them are also in the model's vocabulary, so using them there would give wrong vectors without an error.
"""

from vecmill.errors import InvalidRequest
from vecmill.requests import TextOrIds
from vecmill_server.base.settings import TokenIds
from vecmill_server.dialects.cl100k import Cl100k
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
