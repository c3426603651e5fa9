"""A client that retries and was sent away with a 429 comes again when it was told to, and is served."""

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.inputs import RERANKER
from support.client_packages import GROUPS, drive, drive_npm
from support.http_server import DIM, MODEL, HttpServer, occupy, serve_in_thread, wait_until
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel
from vecmill_server.base.settings import ServerSettings

# Long enough for the slowest package to be imported.
IMPORT_S = 120.0

# What they are told to wait at least; those of OpenAI do not wait so long of their own accord.
TOLD_S = 1.0

# The driver and its group, the call, and whether the client waits as long as it is told to.
Client = tuple[str, str | None, str, bool]
OPENAI_NPM = "the npm package openai"
RETRYING: list[Client] = [
    (OPENAI_NPM, None, "retried", True),
    ("openai", None, "retried", True),
    ("openai", "openai-oldest", "retried", True),
    ("openai", "providers", "retried", True),
    ("cohere", "providers", "retried", True),
    ("cohere", "providers", "retried v1", True),
    ("voyageai", "providers", "retried", False),
    ("mistralai", "providers", "retried", True),
]
LARGE_PACKAGES: list[Client] = [
    ("langchain", "langchain", "retried", True),
    ("langchain_providers", "langchain-providers", "two cohere", True),
    ("langchain_providers", "langchain-providers", "two mistral", False),
    ("ai_sdk", "npm", "retried openai", True),
    ("ai_sdk", "npm", "retried openai-compatible", True),
    ("ai_sdk", "npm", "retried cohere", True),
    ("cohere_ai", "npm", "retried", True),
    ("llamaindex", "npm", "retried", True),
    ("voyageai", "npm", "retried", True),
    ("llama_index", "llama-index", "retried", True),
    ("litellm", "litellm", "retried", True),
    ("litellm", "litellm", "routed", False),
    ("haystack", "haystack", "retried", True),
    ("haystack", "haystack", "rerank retried", False),
    ("mteb", "mteb", "retried", True),
    ("agno", "agents", "retried", True),
    ("mem0", "agents", "retried", True),
    ("pydantic_ai", "agents", "retried", True),
    ("semantic_kernel", "agents", "retried", True),
    ("chromadb", "retrieval", "retried", True),
    ("dspy", "retrieval", "retried", True),
    ("lancedb", "retrieval", "retried", True),
    ("lancedb", "retrieval", "retried by ollama", True),
    ("txtai", "retrieval", "retried", True),
]


# Clients of frameworks that do not retry: the driver, its call, what it raises, and what that says.
REFUSED = "as much waiting as it can answer in time"
FRAMEWORKS_RAISING = [
    ("agno", "two by jina", "EmbeddingError", "429"),
    ("agno", "two by ollama", "EmbeddingError", REFUSED),
    ("chromadb", "two by ollama", "ResponseError", REFUSED),
    ("chromadb", "two by tei", "ValueError", ""),
    ("mem0", "two by ollama", "ResponseError", REFUSED),
    ("rerankers", "rerank cohere", "KeyError", ""),
    ("rerankers", "rerank text-embeddings-inference", "TypeError", ""),
    ("semantic_kernel", "two by ollama", "ResponseError", REFUSED),
]


class SlowEngine(FakeEngine):
    """Is thought to need more than `TOLD_S` for what waits here, which is more than twelve tokens."""

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        return CostModel(fixed_s=1e-4, per_token_s=TOLD_S / 12)


@dataclass(frozen=True, slots=True)
class Crowded:
    """A server with one lane, whose first call hangs until `release`, and no room for another text."""

    server: HttpServer
    threads: frozenset[int | None]

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def has_sent_away(self) -> bool:
        """Whether a request was answered with 429."""
        return self.server.metric("vecmill_http_errors_total", reason="queue_full") > 0

    def release(self) -> None:
        """Compute what waits."""
        self.server.engine.released.set()

    def waited_s(self, log: Sequence[logging.LogRecord]) -> float:
        """How long it took from a 429 to the next request. Fails if there were not both."""
        answered = [line for line in log if line.thread in self.threads]
        place = next(place for place, line in enumerate(answered) if vars(line).get("status") == 429)
        refused_at = answered[place].created
        began = [float(line.created - vars(line)["duration_ms"] / 1000) for line in answered[place + 1 :]]
        return min(time_s for time_s in began if time_s >= refused_at) - refused_at


@contextmanager
def crowded_server() -> Iterator[Crowded]:
    engine = SlowEngine(dim=DIM, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=4), batch=BatchConfig(max_batch_tokens=4))
    settings = ServerSettings(lame_duck_s=0, alias=(RERANKER,))
    others = threading.enumerate()
    with serve_in_thread(settings, config=config, engine=engine) as server:
        own = frozenset(thread.ident for thread in set(threading.enumerate()) - set(others))
        threads = [occupy(server, 1, timeout_s=IMPORT_S)]
        wait_until(lambda: len(engine.calls) == 1)
        threads.append(occupy(server, 3, timeout_s=IMPORT_S))
        yield Crowded(server, own)
        engine.released.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def crowded() -> Iterator[Crowded]:
    with crowded_server() as server:
        yield server


def embed_two(client: Client, url: str, scratch: Path) -> object:
    """How many rows a client gets for two texts."""
    driver, group, call, _ = client
    if driver != OPENAI_NPM:
        return drive(driver, group, url, scratch, call)[call].unwrap()
    (answer,) = drive_npm(
        url, [("embed", {"model": MODEL, "input": ["a text", "another one"]})], max_retries=2
    )
    return len(answer["result"])


def come_again(crowded: Crowded, client: Client, scratch: Path) -> object:
    """How many rows a client gets for two texts where there is room as soon as it was sent away."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(embed_two, client, crowded.url, scratch)
        wait_until(lambda: answer.done() or crowded.has_sent_away, patience_s=IMPORT_S)
        crowded.release()
        return answer.result()


@pytest.mark.parametrize(
    "clients", [RETRYING, *(pytest.param([client], marks=pytest.mark.full) for client in LARGE_PACKAGES)]
)
def test_clients_that_were_sent_away_come_again(
    clients: list[Client], caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests, tmp_path: Path
) -> None:
    """All at once, each at a server of its own, because most of the time they wait."""
    caplog.set_level(logging.INFO, "vecmill.access")
    with ExitStack() as stack:
        servers = [stack.enter_context(crowded_server()) for _ in clients]
        pool = stack.enter_context(ThreadPoolExecutor(len(clients)))
        answers = [pool.submit(come_again, *each, tmp_path) for each in zip(servers, clients, strict=True)]
        for client, server, answer in zip(clients, servers, answers, strict=True):
            with subtests.test(msg=" ".join(map(str, client))):
                assert answer.result() == 2
                assert server.waited_s(caplog.records) >= (TOLD_S if client[-1] else 0)


# What these raise at once.
RAISING = [
    ("langchain_providers", "langchain-providers", "two jina", "RuntimeError"),
    ("langchain_providers", "langchain-providers", "two ollama", "ResponseError"),
    ("langchain_providers", "langchain-providers", "two voyage", "RateLimitError"),
    ("huggingface_inference", "npm", "two", "InferenceClientProviderApiError"),
]


@pytest.mark.full
@pytest.mark.parametrize(("driver", "group", "call", "kind"), RAISING)
def test_a_client_that_never_retries_raises_its_own_error(
    crowded: Crowded, tmp_path: Path, driver: str, group: str, call: str, kind: str
) -> None:
    error = drive(driver, group, crowded.url, tmp_path, call)[call].raised()
    assert kind in error.types, error
    assert "as much waiting as it can answer in time" in error.message


@pytest.mark.full
def test_litellms_providers_raise_their_own_error_at_once(crowded: Crowded, tmp_path: Path) -> None:
    """Whatever number of retries they are given: that is for its router, or its provider of OpenAI."""
    providers = ("cohere", "hosted_vllm", "huggingface", "infinity", "jina_ai", "voyage")
    calls = [f"embed once {name}" for name in providers]
    calls += [f"rerank {name}" for name in providers]
    outcomes = drive("litellm", "litellm", crowded.url, tmp_path, *calls)
    for call in calls:
        error = outcomes[call].raised()
        assert "RateLimitError" in error.types, (call, error)
        assert "as much waiting as it can answer in time" in error.message


@pytest.mark.full
@pytest.mark.parametrize(("driver", "call", "kind", "words"), FRAMEWORKS_RAISING)
def test_a_framework_s_client_raises_at_once(
    crowded: Crowded, tmp_path: Path, driver: str, call: str, kind: str, words: str
) -> None:
    error = drive(driver, GROUPS[driver], crowded.url, tmp_path, call)[call].raised()
    assert kind in error.types
    assert words in error.message
