"""The server that is measured: its address, its model, and a test request."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from vecmill.errors import InvalidConfig, ServerFailed
from vecmill_server.bench.request_sets import ServerApi

_PATHS = {ServerApi.EMBEDDINGS: "embeddings", ServerApi.RERANK: "rerank", ServerApi.TEI_RERANK: "rerank"}
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """The URL of the requests, the host and port, and the headers that each request has."""

    url: str
    base: str
    host: str
    port: int
    is_tls: bool
    headers: Mapping[str, str]

    @property
    def head(self) -> str:
        """The head of a request, with %d for the length of the body."""
        parts = urlsplit(self.url)
        lines = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "content-length: %d", "", ""]).replace("%", "%%").replace("%%d", "%d")

    @classmethod
    def of(cls, url: str, api: ServerApi, key: str | None) -> "MeasuredServer":
        """Return the target for the base URL of a server, as OpenAI's clients take it.

        A URL without a path means `/v1`, except for TEI's rerank. Raises `InvalidConfig` for another URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfig(f"--url {url} is not a URL of a server, such as http://127.0.0.1:7997.")
        path = parts.path.rstrip("/")
        if not parts.path and api is not ServerApi.TEI_RERANK:
            path = "/v1"
        base = f"{parts.scheme}://{parts.netloc}{path}"
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        return cls(f"{base}/{_PATHS[api]}", base, parts.hostname, port, is_tls, headers)


def find_model(target: MeasuredServer) -> str:
    """Return the first model that the server lists. Raises `InvalidConfig` if it lists none."""
    try:
        answer = httpx2.get(f"{target.base}/models", headers=dict(target.headers), timeout=_TIMEOUT_S)
        return str(answer.json()["data"][0]["id"])
    except (httpx2.HTTPError, ssl.SSLError, ValueError, LookupError, TypeError) as error:
        raise InvalidConfig(
            f"{target.base}/models did not name a model ({error}). Name the model with --model."
        ) from error


def send_test_request(target: MeasuredServer, body: bytes) -> float | None:
    """Send a request, and return the tokens that the server counted, `None` if it counted none.

    Raises `ServerFailed` with the response for any status except 200.
    """
    try:
        answer = httpx2.post(target.url, content=body, headers=dict(target.headers), timeout=_TIMEOUT_S)
    except (httpx2.HTTPError, ssl.SSLError) as error:
        raise ServerFailed(f"{target.url} does not answer: {error}") from error
    if answer.status_code != 200:
        raise ServerFailed(f"{target.url} answered {answer.status_code}: {answer.text[:500]}")
    return _read_tokens(answer.content)


def _read_tokens(content: bytes) -> float | None:
    document: Any = json.loads(content)
    usage = document.get("usage") if isinstance(document, dict) else None
    counted = usage.get("prompt_tokens", usage.get("total_tokens")) if isinstance(usage, dict) else None
    return float(counted) if isinstance(counted, int | float) and counted > 0 else None
