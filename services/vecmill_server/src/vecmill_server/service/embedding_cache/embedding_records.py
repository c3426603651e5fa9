"""The records of embeddings on disk: a checksum, the counts of a text, and the numbers of its embedding.

    checksum  16 bytes: BLAKE2b, keyed with the key of the embedding, of all that follows
    header    flags (1 byte), 3 bytes of zeros, tokens, cut tokens, length; little-endian
    values    float32, little-endian

The key is a part of the checksum, so a record is of no use under another key.
"""

import hashlib
import hmac
import struct

import numpy as np

from vecmill.values.embedding_cache import CachedEmbedding

CHECKSUM_BYTES = 16
_HEADER = struct.Struct("<B3xIIf")
_VALUE = np.dtype("<f4")
_HAS_LENGTH, _IS_LOWER_BOUND = 1, 2  # flags; the bound is that of the cut tokens


def encode_record(key: bytes, embedding: CachedEmbedding) -> bytes:
    """Return the record of an embedding."""
    length = embedding.length
    flags = (0 if length is None else _HAS_LENGTH) | (0 if embedding.is_exact else _IS_LOWER_BOUND)
    header = _HEADER.pack(flags, embedding.token_count, embedding.cut_tokens, length or 0.0)
    content = header + embedding.values.astype(_VALUE, copy=False).tobytes()
    return _checksum(key, content) + content


def decode_record(key: bytes, record: bytes) -> CachedEmbedding | None:
    """Return the embedding in a record; `None` if the record is damaged, or is that of another key."""
    content = record[CHECKSUM_BYTES:]
    is_whole = len(content) > _HEADER.size and (len(content) - _HEADER.size) % _VALUE.itemsize == 0
    if not is_whole or not hmac.compare_digest(record[:CHECKSUM_BYTES], _checksum(key, content)):
        return None
    flags, token_count, cut_tokens, length = _HEADER.unpack_from(content)
    values = np.frombuffer(content, _VALUE, offset=_HEADER.size).astype(np.float32, copy=False)
    return CachedEmbedding(
        values[None],
        length if flags & _HAS_LENGTH else None,
        token_count,
        cut_tokens,
        is_exact=not flags & _IS_LOWER_BOUND,
    )


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=CHECKSUM_BYTES).digest()
