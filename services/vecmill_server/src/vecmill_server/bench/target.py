"""The server that is measured: its address, its model, and test requests."""

import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from vecmill.errors import InvalidConfig, ServerFailed
from vecmill.values.json_text import decode_json
from vecmill_server.bench.load_results import OK
from vecmill_server.bench.request_sets import ServerApi

_PATHS = {ServerApi.EMBEDDINGS: "embeddings", ServerApi.RERANK: "rerank", ServerApi.TEI_RERANK: "rerank"}
_TIMEOUT_S = 120.0
# A server that refuses a request with these statuses may answer the next one.
_BUSY = (429, 503)
_BUSY_PAUSE_S = 0.1
_RAW_BYTES = "application/octet-stream"
# A response that takes longer than so many times that of an idle server, and so much more, had to wait.
_MAX_IDLE_RATIO, _MAX_IDLE_MORE_S = 2.0, 0.01


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """The URL of the requests, the host and port, and the headers that each request has."""

    url: str
    models_url: str
    host: str
    port: int
    is_tls: bool
    headers: Mapping[str, str]

    @property
    def head(self) -> str:
        """The head of a request, without the length of the body and the empty line."""
        parts = urlsplit(self.url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lines = [f"POST {path} HTTP/1.1", f"host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, ""])

    @classmethod
    def of(cls, url: str, api: ServerApi, key: str | None) -> "MeasuredServer":
        """Return the target for the base URL of a server, as OpenAI's clients take it.

        A URL without a path means `/v1`, except for TEI's rerank. A query is kept. Raises `InvalidConfig` for
        another URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidConfig(f"--url {url} is not a URL: {error}.") from error
        is_server = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        if not is_server or parts.hostname is None:
            raise InvalidConfig(f"--url {url} is not a URL of a server, such as http://127.0.0.1:7997.")
        path = parts.path.rstrip("/")
        if not parts.path and api is not ServerApi.TEI_RERANK:
            path = "/v1"
        base = f"{parts.scheme}://{parts.netloc}{path}"
        query = f"?{parts.query}" if parts.query else ""
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        is_tls = parts.scheme == "https"
        port = port or (443 if is_tls else 80)
        address = (f"{base}/{_PATHS[api]}{query}", f"{base}/models{query}", parts.hostname, port)
        return cls(*address, is_tls, headers)


@dataclass(frozen=True, slots=True)
class CheckedResponse:
    """The response to a test request, after `seconds`. Without status 200 it has neither tokens nor encoding.

    `tokens` is the number that the server counted, `None` if it counted none. `encoding` is that of the
    embeddings by vLLM's names, `None` for a rerank API.
    """

    status: int
    seconds: float
    tokens: float | None = None
    encoding: str | None = None


UNAUTHORIZED, FORBIDDEN = 401, 403
KEY_VARIABLE = "VECMILL_BENCH_API_KEY"


def find_model(target: MeasuredServer) -> str:
    """Return the first model that the server lists. Raises `InvalidConfig` if it lists none."""
    url = target.models_url
    try:
        with _connect(target, _TIMEOUT_S) as client:
            answer = client.get(url)
        if answer.status_code != OK:
            found = f"{url} answered {answer.status_code}: {_read_message(answer)}"
            raise InvalidConfig(f"{found} {_cure(answer)}")
        return str(decode_json(answer.content)["data"][0]["id"])
    except httpx2.ConnectError as error:
        raise _nothing_listens(target, error) from error
    except (httpx2.HTTPError, ssl.SSLError, ValueError, LookupError, TypeError) as error:
        raise InvalidConfig(f"{url} did not name a model ({error}). Name the model with --model.") from error


def _cure(answer: httpx2.Response) -> str:
    if answer.status_code in (UNAUTHORIZED, FORBIDDEN):
        return f"Put the API key into the environment variable {KEY_VARIABLE}, or into --api-key."
    return "Name the model with --model."


def _read_message(answer: httpx2.Response) -> str:
    """Return the message of an error in the format of OpenAI, else the start of the response."""
    try:
        return str(decode_json(answer.content)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return answer.text[:500]


def send_test_request(target: MeasuredServer, body: bytes, texts: int, timeout_s: float) -> CheckedResponse:
    """Send a request with this number of texts, and check the response.

    Raises `ServerFailed` with the response for any status except 200, 429 and 503, and for a response with
    another number of results.
    """
    began = time.perf_counter()
    try:
        with _connect(target, timeout_s) as client:
            answer = client.post(target.url, content=body)
    except httpx2.ConnectError as error:
        raise _nothing_listens(target, error) from error
    except (httpx2.HTTPError, ssl.SSLError) as error:
        raise ServerFailed(f"{target.url} does not answer: {error}") from error
    seconds = time.perf_counter() - began
    if answer.status_code in _BUSY:
        return CheckedResponse(answer.status_code, seconds)
    if answer.status_code != OK:
        raise ServerFailed(f"{target.url} answered {answer.status_code}: {answer.text[:500]}")
    if answer.headers.get("content-type") == _RAW_BYTES:
        return _check_raw_bytes(target, answer, texts, seconds)
    try:
        document = decode_json(answer.content)
    except ValueError as error:
        raise ServerFailed(f"{target.url} did not answer JSON: {answer.text[:500]}") from error
    found = _list_results(document)
    if len(found) != texts:
        raise ServerFailed(f"{target.url} answered {len(found)} results for {texts} texts.")
    return CheckedResponse(OK, seconds, _read_tokens(document), _read_encoding(found[0]))


def _check_raw_bytes(
    target: MeasuredServer, answer: httpx2.Response, texts: int, seconds: float
) -> CheckedResponse:
    """Check a response of raw bytes, as vLLM and vecmill give them. Raises `ServerFailed`."""
    size = len(answer.content)
    if not size or size % texts:
        raise ServerFailed(f"{target.url} answered {size} bytes, which are not {texts} embeddings.")
    metadata = answer.headers.get("metadata")
    if metadata is None:
        counted = answer.headers.get("x-compute-tokens", "")
        return CheckedResponse(OK, seconds, float(counted) if counted.isdigit() else None, "bytes_only")
    try:
        document = decode_json(metadata)
    except ValueError as error:
        raise ServerFailed(f"{target.url} answered a header `metadata` that is not JSON.") from error
    return CheckedResponse(OK, seconds, _read_tokens(document), "bytes")


def wait_until_idle(target: MeasuredServer, body: bytes, texts: int, idle_s: float, timeout_s: float) -> None:
    """Send a request until its response comes as soon as that of an idle server, at most for `timeout_s`.

    Some servers still compute the requests of clients that have gone. `idle_s` is the time of the response
    when the server was idle.
    """
    ends_at = time.monotonic() + timeout_s
    with suppress(ServerFailed):
        while time.monotonic() < ends_at:
            found = send_test_request(target, body, texts, timeout_s)
            if found.status != OK:
                time.sleep(_BUSY_PAUSE_S)
            elif found.seconds <= _MAX_IDLE_RATIO * idle_s + _MAX_IDLE_MORE_S:
                return


def _nothing_listens(target: MeasuredServer, error: httpx2.ConnectError) -> ServerFailed:
    return ServerFailed(
        f"Cannot connect to {target.host} at port {target.port}: {error}. If no server runs there, "
        "start one, for example with `vecmill serve`, or name the address of another with --url."
    )


def _connect(target: MeasuredServer, timeout_s: float) -> httpx2.Client:
    """Return a client that takes the same way as the load: without the proxy of the environment."""
    context = ssl.create_default_context() if target.is_tls else False
    return httpx2.Client(headers=dict(target.headers), timeout=timeout_s, trust_env=False, verify=context)


def _list_results(document: Any) -> Sequence[Any]:
    """Return the results of a response of any API, empty if it has none."""
    if isinstance(document, dict):
        document = document.get("data", document.get("results"))
    return document if isinstance(document, list) else []


def _read_encoding(result: Any) -> str | None:
    embedding = result.get("embedding") if isinstance(result, dict) else None
    if isinstance(embedding, list):
        return "float"
    return "base64" if isinstance(embedding, str) else None


def _read_tokens(document: Any) -> float | None:
    usage = document.get("usage") if isinstance(document, dict) else None
    counted = usage.get("prompt_tokens", usage.get("total_tokens")) if isinstance(usage, dict) else None
    return float(counted) if isinstance(counted, int | float) and counted > 0 else None
