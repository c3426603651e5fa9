"""The responses of a server to a bulk run: embeddings, chunks, counts and errors.

Every reader raises `ServerFailed` for a response that is not in the format of `/v1/embeddings`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
import numpy as np

from vecmill.bulk.chunk_table import table_of
from vecmill.bulk.embedder import Vectors
from vecmill.errors import InferenceFailed, InvalidRequest, NonFiniteOutput, ServerFailed
from vecmill.results import Chunk
from vecmill.values.aliases import IntArray
from vecmill.values.embeddings import OutputDtype
from vecmill.values.json_text import decode_json

_OF_CHUNKS = ("index", "start", "end", "token_count")


def read_wait_s(answer: httpx2.Response | None, most_s: float) -> float | None:
    """Return the seconds in `Retry-After-Ms` or `Retry-After`, at most `most_s`; `None` without a number."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = "" if answer is None else answer.headers.get(name, "")
        try:
            return min(max(float(value) * unit_s, 0.0), most_s)
        except ValueError:
            continue
    return None


def failure_of(answer: httpx2.Response) -> Exception:
    """Return the error for a response with another status than 200."""
    message = _message(answer)
    if answer.status_code in (400, 413, 422):
        return InvalidRequest(message)
    if answer.status_code in (500, 504):
        return InferenceFailed(message)
    is_refused = answer.status_code in (401, 403)
    cure = " Put the key into the environment variable VECMILL_API_KEY." if is_refused else ""
    return ServerFailed(f"{answer.url} responded with status {answer.status_code}: {message}{cure}")


def _message(answer: httpx2.Response) -> str:
    """Return the error message of a response in the format of OpenAI, else the start of its text."""
    try:
        document = decode_json(answer.content)
        return str(document["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()[:200] or answer.reason_phrase


def read_document(answer: httpx2.Response) -> Mapping[str, Any]:
    """Return the JSON object of a response."""
    try:
        document = decode_json(answer.content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ServerFailed(f"{answer.url} returned a response that is not a JSON object.")
    return document


def read_chunks(answer: httpx2.Response, document: Mapping[str, Any], texts: int) -> IntArray:
    """Return the table of the chunks of so many texts, each of which has at least one."""
    try:
        entries = document["data"]
        chunks = [Chunk(entry["index"], *(entry["chunk"][name] for name in _OF_CHUNKS)) for entry in entries]
        table = table_of(chunks)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ServerFailed(f"{answer.url} returned a response without the places of chunks.") from error
    assert table is not None
    # Text by text, each from its first chunk on.
    expected = [
        (text, index) for text in range(texts) for index in range(np.count_nonzero(table[:, 0] == text))
    ]
    if table[:, :2].tolist() != list(map(list, expected)) or len({*table[:, 0].tolist()}) != texts:
        raise ServerFailed(f"{answer.url} returned other chunks than those of {texts} texts.")
    return table


def read_embeddings(
    answer: httpx2.Response, document: Mapping[str, Any], count: int | None, dim: int, kind: OutputDtype
) -> Vectors:
    """Return the embeddings by their indices, or in their order if `count` is `None`."""
    try:
        entries = sorted(document["data"], key=lambda entry: entry["index"])
        indices = [entry["index"] for entry in entries]
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, and is refused below
            embeddings = np.stack([_read_embedding(entry["embedding"], kind) for entry in entries])
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise ServerFailed(f"{answer.url} returned a response without {kind} embeddings.") from error
    is_complete = count is None or indices == list(range(count))
    if not is_complete or embeddings.ndim != 2 or (dim and embeddings.shape[1] != dim):
        raise ServerFailed(
            f"{answer.url} returned {len(embeddings)} embeddings of {embeddings.shape[-1]} dimensions for "
            f"{'chunks' if count is None else f'{count} texts'}."
        )
    if not np.isfinite(embeddings).all():
        raise NonFiniteOutput("the server returned embeddings that are not finite.")
    return embeddings


def _read_embedding(value: str | list[float], kind: OutputDtype) -> Vectors:
    if kind is OutputDtype.FLOAT and isinstance(value, str):
        return np.frombuffer(base64.b64decode(value, validate=True), kind.dtype)
    if kind is not OutputDtype.FLOAT and not all(isinstance(number, int) for number in value):
        raise ValueError("not integers")
    return np.array(value, kind.dtype)


def read_tokens(document: Mapping[str, Any]) -> int:
    """Return the number of tokens that the server counted, 0 if it does not say."""
    usage = document.get("usage")
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0


def read_truncated(document: Mapping[str, Any], count: int) -> Sequence[int | None]:
    """Return the number of tokens that were cut off each of `count` texts, by a server that tells it."""
    dropped = [0] * count
    try:
        for entry in document.get("truncated", ()):
            dropped[entry["index"]] = int(entry["tokens"])
    except (KeyError, TypeError, ValueError, IndexError):
        return ()
    return dropped
