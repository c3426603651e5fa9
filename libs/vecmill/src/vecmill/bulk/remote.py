"""The embedder that calls a server: concurrent calls of `/v1/embeddings`, with retries.

The status of a response decides how the embedder continues. After 429, 502, 503 or a connection error the
call is repeated, after `Retry-After` or with exponential backoff. After 413 or 504 the call is divided into
two halves. 400, 422 and 500 mean that one of the texts caused the error. Any other status ends the run.

The number of concurrent calls follows additive increase and multiplicative decrease. Source: Chiu and Jain,
"Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in Computer Networks", 1989.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import numpy as np

from vecmill.bulk.chunk_table import join_tables
from vecmill.bulk.embedder import (
    PROBE,
    EmbeddedTexts,
    EmbedParameters,
    describe_space,
)
from vecmill.bulk.picture_inputs import EmbedInput, PictureRoom, data_uri
from vecmill.bulk.remote_answers import (
    failure_of,
    read_chunks,
    read_document,
    read_embeddings,
    read_tokens,
    read_truncated,
    read_wait_s,
)
from vecmill.errors import (
    EngineError,
    InvalidConfig,
    RequestError,
    ServerFailed,
)
from vecmill.models.heads import Similarity
from vecmill.requests import ChunkingMode, Picture, Purpose
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill.values.json_text import decode_json

FIRST_CALLS = 4
MOST_CALLS = 32


class ConcurrencyLimiter:
    """A limit on concurrent calls. Use with `async with`, from one event loop."""

    def __init__(self, first: int = FIRST_CALLS, most: int = MOST_CALLS) -> None:
        self.limit = first
        self._most = most
        self._inside = 0
        self._left = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._left:
            await self._left.wait_for(lambda: self._inside < self.limit)
            self._inside += 1

    async def __aexit__(self, *_: object) -> None:
        async with self._left:
            self._inside -= 1
            self._left.notify_all()

    def increase(self) -> None:
        """Raise the limit by one after a successful call."""
        self.limit = min(self.limit + 1, self._most)

    def decrease(self) -> None:
        """Halve the limit after a call that was refused or timed out."""
        self.limit = max(self.limit // 2, 1)


CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 300.0
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
PATIENCE_S = 300.0  # the total wait of one call before it fails

# The values of `input_type` for purposes with another name there.
_INPUT_TYPES = {Purpose.SIMILARITY: "text-matching"}

# Of the space, its computation and the prompt. Servers other than vecmill have none.
_SPACE_HEADERS = ("x-space", "x-space-exact", "x-prompt-name")

_NORM_TOLERANCE = 0.01  # of vectors that a server rounds to 16 bits

_REFUSED = frozenset({429, 502, 503})
_TOO_MUCH = frozenset({413, 504})

Sleep = Callable[[float], Awaitable[object]]


class RemoteEmbedder:
    """A server as an `Embedder`. Use `open_remote` to connect."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        model: str | None,
        parameters: EmbedParameters,
        *,
        limiter: ConcurrencyLimiter | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.dim = 0
        self.similarity: str | None = None
        self.dtype = parameters.kind.dtype
        self.identity: Mapping[str, JsonValue] = {}
        chunking = parameters.chunking
        self.call_texts = parameters.choose_call(32)
        self._probe = parameters.probe
        self._room = PictureRoom()
        self._client = client
        self._kind = parameters.kind
        self._gives_chunks = parameters.gives_chunks
        self._limiter = limiter or ConcurrencyLimiter()
        self._sleep = sleep
        self._name: str | None = None
        self._tells_truncated = False
        self._space: tuple[str | None, ...] | None = None  # of `_SPACE_HEADERS`, of the first answer
        purpose = parameters.purpose
        asked = {
            "model": model,
            "dimensions": parameters.dimensions,
            "prompt_name": parameters.prompt_name,
            "truncate": parameters.truncation.is_allowed,
            "input_type": purpose and _INPUT_TYPES.get(purpose, purpose),
            "output_dtype": None if parameters.kind is OutputDtype.FLOAT else parameters.kind,
            # As plain numbers, floats of a server without `output_dtype` differ from 8-bit integers.
            "encoding_format": "base64" if parameters.kind is OutputDtype.FLOAT else "float",
            "chunking": chunking and chunking.describe(),
        }
        self._asked = {name: value for name, value in asked.items() if value is not None}

    async def probe(self) -> None:
        """Embed a sample text, and set the dimensions and the identity of the server's model.

        Raises `ServerFailed`, and `InvalidConfig` if the server refuses the options.
        """
        try:
            if "chunking" in self._asked:
                await self._require_chunks()
            embeddings = (await self.embed([self._probe])).embeddings
            self.dim = embeddings.shape[1]
        except RequestError as error:
            raise InvalidConfig(f"{self._client.base_url} refused a test request: {error.message}") from error
        except EngineError as error:
            raise ServerFailed(f"{self._client.base_url} failed a test request: {error.message}") from error
        # No server says how its vectors are compared. If they are normalised, it does not matter.
        if abs(float(np.linalg.norm(embeddings[0].astype(np.float64))) - 1.0) < _NORM_TOLERANCE:
            self.similarity = Similarity.COSINE
        numbers = self.dim * 8 if self._kind.needs_bytes else self.dim
        if numbers != self._asked.get("dimensions", numbers):
            raise InvalidConfig(
                f"{self._client.base_url} ignores --dimensions and returns embeddings of {numbers} "
                "dimensions. Remove --dimensions."
            )
        assert self._space is not None  # the probe was embedded
        entry = await self._entry()
        self._tells_truncated = "on_long_input" in entry
        details = {name: entry[name] for name in ("engine", "precision") if name in entry}
        self.identity = {"name": self._name, **details, **describe_space(*self._space)}

    async def _require_chunks(self) -> None:
        """Raise `InvalidConfig` if the server returns no chunks, since others ignore the field."""
        body = {**self._asked, "input": [PROBE], "chunking": {"mode": ChunkingMode.CHUNKS}}
        async with self._limiter:
            answer = await self._send("POST", "embeddings", json=body)
        if answer.status_code != 200:
            # The first request of a run says what is wrong.
            return
        entries = read_document(answer).get("data")
        if not isinstance(entries, list) or not all(isinstance(e, dict) and "chunk" in e for e in entries):
            raise InvalidConfig(f"{self._client.base_url} ignores --chunking. Remove it.")

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        """Embed some inputs; see `Embedder.embed`. Raises `ServerFailed` for an unexpected response."""
        async with self._limiter, self._room.read(inputs) as read:
            body = {**self._asked, "input": [_write_input(one) for one in read]}
            answer = await self._send("POST", "embeddings", json=body)
        if answer.status_code in _TOO_MUCH and len(inputs) > 1:
            middle = len(inputs) // 2
            first, second = await self.embed(inputs[:middle]), await self.embed(inputs[middle:])
            return EmbeddedTexts(
                np.concatenate([first.embeddings, second.embeddings]),
                first.token_count + second.token_count,
                truncated_tokens=[*first.dropped, *second.dropped],
                chunks=join_tables([first.chunks, second.chunks], [0, middle]),
            )
        if answer.status_code != 200:
            raise failure_of(answer)
        document = read_document(answer)
        self._check_name(document.get("model"))
        self._check_space(answer)
        table = read_chunks(answer, document, len(inputs)) if self._gives_chunks else None
        # Chunks are in the order of the texts; their index is that of the text.
        count = None if table is not None else len(inputs)
        embeddings = read_embeddings(answer, document, count, self.dim, self._kind)
        dropped = read_truncated(document, len(embeddings)) if self._tells_truncated else ()
        return EmbeddedTexts(embeddings, read_tokens(document), truncated_tokens=dropped, chunks=table)

    async def _send(self, method: str, path: str, **body: Any) -> httpx2.Response:
        """Repeat a request until the server accepts it, and return the response."""
        waited_s, wait_s = 0.0, FIRST_WAIT_S
        while True:
            answer, trouble = None, ""
            try:
                answer = await self._client.request(method, path, **body)
            except (httpx2.RequestError, ssl.SSLError) as error:
                trouble = str(error) or type(error).__name__
            if answer is not None and answer.status_code not in _REFUSED:
                if answer.status_code in _TOO_MUCH:
                    self._limiter.decrease()
                else:
                    self._limiter.increase()
                return answer
            self._limiter.decrease()
            # A server that never responded is reported at once: its address is probably wrong.
            if answer is None and (self._name is None or waited_s >= PATIENCE_S):
                raise ServerFailed(
                    f"{self._client.base_url} cannot be reached: {trouble}. Start a server there, for "
                    "example with `vecmill serve`, or name the address of another with --server."
                )
            if answer is not None and waited_s >= PATIENCE_S:
                return answer
            pause_s = max(read_wait_s(answer, PATIENCE_S) or wait_s, 0.001)
            await self._sleep(pause_s)
            waited_s, wait_s = waited_s + pause_s, min(2 * wait_s, LONGEST_WAIT_S)

    def _check_name(self, name: JsonValue) -> None:
        if self._name is None:
            self._name = str(name)
        elif self._name != str(name):
            raise ServerFailed(
                f"{self._client.base_url} now serves the model {name!r} instead of {self._name!r}."
            )

    def _check_space(self, answer: httpx2.Response) -> None:
        """Raise `ServerFailed` if the vectors are not of the space and the prompt of the first answer."""
        found = tuple(answer.headers.get(name) for name in _SPACE_HEADERS)
        if self._space is None:
            self._space = found
        elif self._space != found:
            before, after = self._space[1] or "no space", found[1] or "no space"
            raise ServerFailed(
                f"{self._client.base_url} now returns vectors of {after} instead of {before}: its model or "
                "their computation has changed. Vectors of both do not belong in one file."
            )

    async def _entry(self) -> Mapping[str, Any]:
        """Return what the server says of its model, nothing if it does not say."""
        answer = await self._send("GET", "models")
        try:
            entries = decode_json(answer.content)["data"]
            return dict(next(entry for entry in entries if entry["id"] == self._name))
        except (ValueError, KeyError, TypeError, StopIteration):
            return {}


@asynccontextmanager
async def open_remote(
    url: str, model: str | None, parameters: EmbedParameters, *, key: str | None = None
) -> AsyncIterator[RemoteEmbedder]:
    """Connect to the server at `url`, which may end in /v1, and test it. Raises `SetupError`."""
    if not _is_address(url):
        raise InvalidConfig(f"--server is {url!r}; it must be an address such as http://127.0.0.1:7997.")
    base_url = url.rstrip("/")
    base_url = base_url if base_url.endswith("/v1") else f"{base_url}/v1"
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidConfig("--api-key must be one key without spaces.")
    address = httpx2.URL(base_url)
    async with httpx2.AsyncClient(
        # A password in it would stand in every message.
        base_url=address.copy_with(userinfo=b""),
        auth=(address.username, address.password) if address.userinfo else None,
        headers={"authorization": f"Bearer {key}"} if key else {},
        timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
    ) as client:
        embedder = RemoteEmbedder(client, model, parameters)
        await embedder.probe()
        yield embedder


def _is_address(url: str) -> bool:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)


def _write_input(value: str | Picture) -> JsonValue:
    # A server without pictures refuses an object, and would embed a plain string as a text.
    return value if isinstance(value, str) else {"image": data_uri(value)}
