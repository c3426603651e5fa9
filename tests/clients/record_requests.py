"""Records requests of packages that `make test` does not install. `test_recorded_requests.py` sends them.

`python -m clients.record_requests [CLIENT...]` writes `requests/CLIENT.json`: for each call of the driver
that is named here, the request that the package sent.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from clients.request_recorder import SentRequest, recording
from clients.zoo import save_reranker, serve_zoo
from support.client_packages import drive, driver_and_group
from support.source_tree import ROOT

FOLDER = ROOT / "tests/clients/requests"

# The dialects of LiteLLM. That of OpenAI is OpenAI's own.
LITELLM_EMBEDDING = ("hosted_vllm", "infinity", "cohere", "jina_ai", "voyage", "huggingface", "dashscope")
LITELLM_RERANK = (
    *("hosted_vllm", "infinity", "cohere", "jina_ai", "voyage", "huggingface"),
    *("nvidia_nim", "deepinfra", "dashscope", "fireworks_ai", "azure_ai"),
)

# The calls of each driver@group. The first words of a call say what it gets: rows, a ranking or labels.
RECORDED: Mapping[str, tuple[str, ...]] = {
    "ai_sdk@npm": ("embed openai", "embed openai-compatible", "embed cohere", "rerank"),
    "azure_inference@hosted": ("embed",),
    "cohere_ai@npm": ("embed v1", "embed v2", "rerank v1", "rerank v2"),
    "dashscope@hosted": ("embed", "rerank"),
    "deepinfra@hosted": ("embed",),
    "huggingface_inference@npm": ("embed", "classify"),
    "langchain_providers@langchain-providers": (
        "embed cohere",
        "embed jina",
        "embed mistral",
        "embed ollama",
        "embed voyage",
        "rerank cohere",
        "rerank jina",
        "rerank voyage",
    ),
    "litellm@litellm": (
        *(f"embed {name}" for name in LITELLM_EMBEDDING),
        *(f"rerank {name}" for name in LITELLM_RERANK),
    ),
    "llamaindex@npm": ("embed",),
    "pinecone@hosted": ("embed", "rerank"),
    "voyageai@npm": ("embed", "embed documents", "rerank"),
}


def record(client: str, url: str, scratch: Path) -> dict[str, SentRequest]:
    """The request of each call of the client that is recorded, which are answered by the server at `url`."""
    driver, group = driver_and_group(client)
    found = {}
    for call in RECORDED[client]:
        with recording(url) as (proxy, requests):
            drive(driver, group, proxy, scratch, call)[call].unwrap()
        (found[call],) = requests
    return found


def read(client: str) -> dict[str, SentRequest]:
    """The requests of the client as they were recorded."""
    found = json.loads((FOLDER / f"{client}.json").read_text("utf-8"))
    return {call: SentRequest(**request) for call, request in found.items()}


def recorded_calls() -> Iterator[tuple[str, str]]:
    """Each client, with each of its calls."""
    for client, calls in RECORDED.items():
        for call in calls:
            yield client, call


def main() -> None:
    """Record the requests of the clients that the command line names, or of all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serve_zoo(folder, save_reranker(folder), folder / "cache") as server:
            for client in sys.argv[1:] or RECORDED:
                requests = {call: asdict(sent) for call, sent in record(client, server.url, folder).items()}
                text = json.dumps(requests, indent=2, ensure_ascii=False)
                (FOLDER / f"{client}.json").write_text(f"{text}\n", "utf-8")
                print(f"{client}: {len(requests)} requests")


if __name__ == "__main__":
    main()
