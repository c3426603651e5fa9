"""Raw bytes of embeddings in responses: vLLM's `encoding_format` bytes and bytes_only, and `Accept`.

The body of such a response is the bytes of the embeddings, one after another without gaps, in the order of
the inputs. With `bytes`, the header `metadata` is the JSON object that is around the embeddings otherwise,
with the place of each in the body. The header grows with the inputs, so their number is limited. With
`bytes_only` there is no such header: a client knows the number of its inputs, and divides the body. Source:
vLLM, `vllm/entrypoints/pooling/utils.py` (`encode_pooling_bytes`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecmill.results import EmbedResult
from vecmill.vectors import quantize
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import Envelope, WrittenBody
from vecmill_server.dialects.embedding_encodings import EmbeddingEncoding, RawFormat
from vecmill_server.dialects.fields import Json
from vecmill_server.dialects.response_parts import write_usage

ENCODING_FORMAT = "encoding_format"
METADATA = "metadata"
# The inputs that one header describes. 512 entries of at most 110 bytes stay below the 64 KiB that Python's
# http.client (requests, urllib3) accepts as one header line.
MOST_DESCRIBED = 512
# Other requests run between pieces of this size: copying one takes less than 0.1 ms.
PIECE_BYTES = 256 * 1024

OCTET_STREAM, _JSON = "application/octet-stream", "application/json"
_OCTETS = OCTET_STREAM.encode("ascii")


def negotiate_encoding(body: Json, accept: bytes) -> Json:
    """Return `body`, with `encoding_format` bytes_only if the header `accept` prefers bytes to JSON.

    An `encoding_format` in the body takes precedence.
    """
    if body.get(ENCODING_FORMAT) is not None:
        return body
    return {**body, ENCODING_FORMAT: RawFormat.BYTES_ONLY} if prefers_bytes(accept) else body


def prefers_bytes(accept: bytes) -> bool:
    """Return whether a header `Accept` names application/octet-stream, with at least the weight of JSON.

    Of equal weights, bytes are preferred: only a client that reads them names them. Source: RFC 9110, 12.5.1.
    """
    weights = dict(_read_ranges(accept.decode("latin-1").lower()))
    of_json = next((weights[name] for name in (_JSON, "application/*", "*/*") if name in weights), 0.0)
    of_bytes = weights.get(OCTET_STREAM, 0.0)
    return of_bytes > 0 and of_bytes >= of_json


def _read_ranges(accept: str) -> Iterator[tuple[str, float]]:
    """Yield each media range of a header and its weight, 0 if that is not a number."""
    for entry in accept.split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        try:
            yield name, float(weight)
        except ValueError:
            yield name, 0.0


@dataclass(frozen=True, slots=True)
class RawEmbeddings:
    """Writes embeddings as raw bytes; with `is_described`, and a header `metadata`."""

    encoding: EmbeddingEncoding
    is_described: bool

    @classmethod
    def of(
        cls,
        raw: RawFormat,
        encodings: Mapping[str, EmbeddingEncoding],
        inputs: int,
    ) -> "RawEmbeddings":
        """Return the writer for a request with so many inputs. Raises `InvalidRequest`."""
        encoding, *others = encodings.values()
        if others or encoding.is_base64:
            raise fields.invalid(
                "embedding_type", f"must name one type, and not base64, with `{ENCODING_FORMAT}` {raw}."
            )
        is_described = raw is RawFormat.BYTES
        if is_described and inputs > MOST_DESCRIBED:
            raise fields.invalid(
                ENCODING_FORMAT,
                f"may be bytes for at most {MOST_DESCRIBED} inputs, because a header describes each; the "
                f"request has {inputs}. Ask for bytes_only, or send the inputs in parts.",
            )
        return cls(encoding, is_described)

    def __call__(self, result: EmbedResult, envelope: Envelope) -> WrittenBody:
        """Write the bytes of `result`, and the header that describes them."""
        rows = quantize(result.embeddings, self.encoding.dtype, result.ranges)
        pieces = list(self._write(rows))
        if not self.is_described:
            return WrittenBody(pieces, content_type=_OCTETS)
        size = sum(map(len, pieces)) // len(rows) if len(rows) else 0
        metadata = {
            "id": f"embd-{envelope.request_id}",
            "created": envelope.created,
            "model": envelope.model,
            "data": list(self._describe(rows, size)),
            "usage": write_usage(result.token_count),
        }
        # ASCII, since clients read the bytes of headers in different ways.
        value = json.dumps(metadata, separators=(",", ":")).encode("ascii")
        return WrittenBody(pieces, [(METADATA.encode("ascii"), value)], _OCTETS)

    def _write(self, rows: npt.NDArray[np.generic]) -> Iterable[bytes]:
        step = max(1, PIECE_BYTES // max(1, rows[:1].nbytes))
        for start in range(0, len(rows), step):
            yield self.encoding.float_format.to_bytes(rows[start : start + step])

    def _describe(self, rows: npt.NDArray[np.generic], size: int) -> Iterator[dict[str, Any]]:
        encoding = self.encoding
        is_float = rows.dtype == np.float32
        for index in range(len(rows)):
            yield {
                "index": index,
                "embed_dtype": encoding.float_format.type if is_float else encoding.dtype,
                "endianness": "big" if encoding.float_format.is_big_endian else "little",
                "start": index * size,
                "end": (index + 1) * size,
                "shape": rows.shape[1:],
            }
