"""Embedding by a server: `/v1/embeddings` with base64, several calls at once, refusals waited out.

What a server says of itself decides what becomes of a call. 429, 502 and 503, and a connection that fails:
the same again, after the time that it names or a longer and longer one. 413 and 504: in two halves. 400, 422
and 500: one of the texts is at fault. Anything else is no use to repeat.
"""

import asyncio
import base64
import binascii
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import httpx2
import numpy as np

from vecmill.corpus.embedder import PROBE, Embedded, Rows, Treatment
from vecmill.corpus.gate import Gate
from vecmill.errors import (
    EngineError,
    InferenceFailed,
    InvalidConfig,
    InvalidRequest,
    NonFiniteOutput,
    RequestError,
    ServerFailed,
)
from vecmill.reading import Purpose
from vecmill.rows import RowKind
from vecmill.types import JsonValue

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 300.0
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
PATIENCE_S = 300.0  # how long one call may be refused before we give up

# What our purposes are called in `input_type`, where not as we call them.
_INPUT_TYPES = MappingProxyType({Purpose.SIMILARITY: "text-matching"})

_REFUSED = frozenset({429, 502, 503})
_TOO_MUCH = frozenset({413, 504})

Sleep = Callable[[float], Awaitable[object]]


class RemoteEmbedder:
    """A server as an `Embedder`. Make it by `open_remote`."""

    call_texts = 32

    def __init__(
        self,
        client: httpx2.AsyncClient,
        model: str | None,
        treatment: Treatment,
        *,
        gate: Gate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.dim = 0
        self.dtype = treatment.kind.dtype
        self.identity: Mapping[str, JsonValue] = {}
        self._client = client
        self._kind = treatment.kind
        self._gate = gate or Gate()
        self._sleep = sleep
        self._name: str | None = None
        purpose = treatment.purpose
        asked = {
            "model": model,
            "dimensions": treatment.dimensions,
            "prompt_name": treatment.prompt_name,
            "input_type": purpose and _INPUT_TYPES.get(purpose, purpose),
            "output_dtype": None if treatment.kind is RowKind.FLOAT else treatment.kind,
            # As plain numbers those of a server that does not know `output_dtype` are told from 8 bits.
            "encoding_format": "base64" if treatment.kind is RowKind.FLOAT else "float",
        }
        self._asked = {name: value for name, value in asked.items() if value is not None}

    async def meet(self) -> None:
        """Find out what the server is, by embedding a text of our own.

        Raises `ServerFailed`, and `InvalidConfig` if it refuses what is asked for.
        """
        try:
            self.dim = (await self.embed([PROBE])).rows.shape[1]
        except RequestError as error:
            raise InvalidConfig(f"{self._client.base_url} refuses this: {error.message}") from error
        except EngineError as error:
            raise ServerFailed(f"{self._client.base_url} fails: {error.message}") from error
        numbers = self.dim * 8 if self._kind.needs_bytes else self.dim
        if numbers != self._asked.get("dimensions", numbers):
            raise InvalidConfig(
                f"{self._client.base_url} gives rows of {numbers} numbers, whatever is asked. Leave out "
                "--dimensions."
            )
        self.identity = {"name": self._name, **await self._details()}

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """As `Embedder.embed`. Raises `ServerFailed` if the server does not answer as it should."""
        body = {**self._asked, "input": list(texts)}
        async with self._gate:
            answer = await self._send("POST", "embeddings", json=body)
        if answer.status_code in _TOO_MUCH and len(texts) > 1:
            middle = len(texts) // 2
            first, second = await self.embed(texts[:middle]), await self.embed(texts[middle:])
            return Embedded(np.concatenate([first.rows, second.rows]), first.tokens + second.tokens)
        if answer.status_code != 200:
            raise _failure(answer)
        document = _read_document(answer)
        self._check_name(document.get("model"))
        rows = _read_rows(answer, document, len(texts), self.dim, self._kind)
        return Embedded(rows, _read_tokens(document))

    async def _send(self, method: str, path: str, **body: Any) -> httpx2.Response:
        """The first answer that is no refusal."""
        waited_s, wait_s = 0.0, FIRST_WAIT_S
        while True:
            answer, trouble = None, ""
            try:
                answer = await self._client.request(method, path, **body)
            except (httpx2.RequestError, ssl.SSLError) as error:
                trouble = str(error) or type(error).__name__
            if answer is not None and answer.status_code not in _REFUSED:
                if answer.status_code in _TOO_MUCH:
                    self._gate.narrow()
                else:
                    self._gate.widen()
                return answer
            self._gate.narrow()
            # Whoever has just named a server that is not there would rather know.
            if answer is None and (self._name is None or waited_s >= PATIENCE_S):
                raise ServerFailed(f"{self._client.base_url} cannot be reached: {trouble}.")
            if answer is not None and waited_s >= PATIENCE_S:
                return answer
            pause_s = max(_asked_wait_s(answer) or wait_s, 0.001)
            await self._sleep(pause_s)
            waited_s, wait_s = waited_s + pause_s, min(2 * wait_s, LONGEST_WAIT_S)

    def _check_name(self, name: JsonValue) -> None:
        if self._name is None:
            self._name = str(name)
        elif self._name != str(name):
            raise ServerFailed(
                f"{self._client.base_url} served the model {self._name!r} when this began, and {name!r} now."
            )

    async def _details(self) -> Mapping[str, JsonValue]:
        """How the server computes, where it says so."""
        answer = await self._send("GET", "models")
        try:
            entries = answer.json()["data"]
            found = next(entry for entry in entries if entry["id"] == self._name)
        except (ValueError, KeyError, TypeError, StopIteration):
            return {}
        return {name: found[name] for name in ("engine", "precision") if name in found}


@asynccontextmanager
async def open_remote(
    url: str, model: str | None, treatment: Treatment, *, key: str | None = None
) -> AsyncIterator[RemoteEmbedder]:
    """Meet the server at `url`, which may end in /v1. Raises `SetupError`."""
    if not _is_address(url):
        raise InvalidConfig(f"--server is {url!r}; it must be an address such as http://127.0.0.1:7997.")
    base_url = url.rstrip("/")
    base_url = base_url if base_url.endswith("/v1") else f"{base_url}/v1"
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidConfig("--api-key must be one key, without blanks.")
    address = httpx2.URL(base_url)
    async with httpx2.AsyncClient(
        # A password in it would stand in every message.
        base_url=address.copy_with(userinfo=b""),
        auth=(address.username, address.password) if address.userinfo else None,
        headers={"authorization": f"Bearer {key}"} if key else {},
        timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
    ) as client:
        embedder = RemoteEmbedder(client, model, treatment)
        await embedder.meet()
        yield embedder


def _is_address(url: str) -> bool:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)


def _asked_wait_s(answer: httpx2.Response | None) -> float | None:
    """How long the server asks to be left alone, if it says so in seconds."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = "" if answer is None else answer.headers.get(name, "")
        try:
            return min(max(float(value) * unit_s, 0.0), PATIENCE_S)
        except ValueError:
            continue
    return None


def _failure(answer: httpx2.Response) -> Exception:
    said = _message(answer)
    if answer.status_code in (400, 413, 422):
        return InvalidRequest(said)
    if answer.status_code in (500, 504):
        return InferenceFailed(said)
    return ServerFailed(f"{answer.url} answered {answer.status_code}: {said}")


def _message(answer: httpx2.Response) -> str:
    """The sentence in the body of an error, in the shape of OpenAI's."""
    try:
        document = answer.json()
        return str(document["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()[:200] or answer.reason_phrase


def _read_document(answer: httpx2.Response) -> Mapping[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ServerFailed(f"{answer.url} answered with something that is no JSON object.")
    return document


def _read_rows(
    answer: httpx2.Response, document: Mapping[str, Any], count: int, dim: int, kind: RowKind
) -> Rows:
    try:
        entries = sorted(document["data"], key=lambda entry: entry["index"])
        places = [entry["index"] for entry in entries]
        rows = np.stack([_read_row(entry["embedding"], kind) for entry in entries])
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise ServerFailed(f"{answer.url} answered with something that holds no rows of {kind}.") from error
    if places != list(range(count)) or rows.ndim != 2 or (dim and rows.shape[1] != dim):
        raise ServerFailed(
            f"{answer.url} answered with {len(rows)} rows of {rows.shape[-1]} numbers, for {count} texts."
        )
    if not np.isfinite(rows).all():
        raise NonFiniteOutput("the server answered with rows that are not numbers.")
    return rows


def _read_row(value: str | list[float], kind: RowKind) -> Rows:
    if kind is RowKind.FLOAT and isinstance(value, str):
        return np.frombuffer(base64.b64decode(value, validate=True), kind.dtype)
    if kind is not RowKind.FLOAT and not all(isinstance(number, int) for number in value):
        raise ValueError("no whole numbers")
    return np.array(value, kind.dtype)


def _read_tokens(document: Mapping[str, Any]) -> int:
    usage = document.get("usage")
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0
