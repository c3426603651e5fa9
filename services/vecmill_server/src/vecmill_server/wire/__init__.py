"""JSON to values and values to JSON: every check of a request's shape, one module a family of bodies."""

from vecmill_server.wire.documents import Envelope, decode_object, encode_json
from vecmill_server.wire.embeddings import EmbeddingsCall, decode_embeddings, encode_embeddings
from vecmill_server.wire.rerank import RerankCall, decode_rerank, encode_rerank

__all__ = [
    "EmbeddingsCall",
    "Envelope",
    "RerankCall",
    "decode_embeddings",
    "decode_object",
    "decode_rerank",
    "encode_embeddings",
    "encode_json",
    "encode_rerank",
]
