"""What to do with inputs that are lists of token ids instead of text.

A list of ids does not say whose they are. Those that LangChain sends unasked are OpenAI's: taken for the
model's own, most would be in its vocabulary and give a wrong vector without an error.
"""

from vecmill.errors import InvalidRequest
from vecmill.types import TextOrIds
from vecmill_server.cl100k import Cl100k
from vecmill_server.dialects import ReadIds
from vecmill_server.settings import TokenIds

REFUSED = (
    "Token ids are not accepted, because ids made by another tokenizer would give wrong vectors. Send text. "
    "With LangChain's OpenAIEmbeddings, set check_embedding_ctx_length=False, or start the server with "
    "--token-ids cl100k. If they are the model's own ids, start it with --token-ids native."
)


def choose_ids_reader(policy: TokenIds) -> ReadIds:
    """How token ids are read under `policy`. Raises `MissingExtra` where that needs what is not installed."""
    if policy is TokenIds.NATIVE:
        return keep_ids
    if policy is TokenIds.CL100K:
        return Cl100k.load().decode
    return refuse_ids


def refuse_ids(token_ids: tuple[int, ...], field: str) -> TextOrIds:
    """Raise `InvalidRequest`."""
    raise InvalidRequest(REFUSED, field=field)


def keep_ids(token_ids: tuple[int, ...], field: str) -> TextOrIds:
    """The model's own ids, as they are."""
    return token_ids
