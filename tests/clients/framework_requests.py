"""Requests of packages that are too large for each test run, as the packages sent them.

`framework_requests.json` has the requests of each driver. `make record-requests` writes the file anew, after
`make lock` for example. The full tests record them too, and compare.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from clients.inputs import RERANKER
from clients.request_recorder import SentRequest, recording
from support.client_packages import GROUPS, drive
from support.http_server import serve_in_thread
from vecmill_server.base.settings import ServerSettings

FILE = Path(__file__).with_name("framework_requests.json")

# Calls of each driver that send different requests.
CALLS: Mapping[str, tuple[str, ...]] = {
    "agno": ("embed", "jina", "ollama one by one"),
    "chromadb": ("embed", "tei", "tei at the address", "ollama"),
    "dspy": ("embed",),
    "lancedb": ("embed", "ollama"),
    "mem0": ("embed", "lmstudio", "ollama pulled"),
    "pydantic_ai": ("embed", "embed short"),
    "rerankers": (
        "rerank cohere",
        "rerank jina",
        "rerank mixedbread.ai",
        "rerank pinecone",
        "rerank text-embeddings-inference",
        "rerank voyage",
    ),
    "semantic_kernel": ("embed", "embed short"),
    "txtai": ("embed",),
}

# Headers that choose what the server does with a request.
KEPT_HEADERS = ("accept", "api-key", "authorization", "content-type", "x-pinecone-api-version")

# A server that has what the calls ask for.
SETTINGS = ServerSettings(lame_duck_s=0, access_log=False, alias=(RERANKER,))


def record(driver: str, scratch: Path) -> list[SentRequest]:
    """What the client of `driver` sends for its calls."""
    with (
        serve_in_thread(SETTINGS) as server,
        recording(f"http://127.0.0.1:{server.port}") as (url, sent),
    ):
        for outcome in drive(driver, GROUPS[driver], url, scratch, *CALLS[driver]).values():
            outcome.unwrap()
    return [replace(request, headers=_kept(request.headers)) for request in sent]


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in KEPT_HEADERS if name in headers}


def read_recorded() -> dict[str, list[SentRequest]]:
    """The recorded requests of each driver."""
    return {
        driver: [SentRequest(**request) for request in sent]
        for driver, sent in json.loads(FILE.read_text("utf-8")).items()
    }


def main() -> None:
    """Record the requests of all drivers."""
    with tempfile.TemporaryDirectory() as scratch:
        recorded = {driver: record(driver, Path(scratch)) for driver in CALLS}
    written = {driver: [asdict(request) for request in sent] for driver, sent in recorded.items()}
    FILE.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
