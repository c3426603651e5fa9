"""A client that retries and was sent away with a 429 comes again when it was told to, and is served."""

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clients.inputs import RERANKER
from support.client_packages import GROUPS, drive, drive_npm, ensure_environment
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
RETRYING = [
    ("openai", None, "retried", True),
    ("openai", "openai-oldest", "retried", True),
    ("openai", "providers", "retried", True),
    ("cohere", "providers", "retried", True),
    ("cohere", "providers", "retried v1", True),
    ("voyageai", "providers", "retried", False),
    ("mistralai", "providers", "retried", True),
    pytest.param("langchain", "langchain", "retried", True, marks=pytest.mark.full),
    pytest.param("langchain_providers", "langchain-providers", "two cohere", True, marks=pytest.mark.full),
    pytest.param("langchain_providers", "langchain-providers", "two mistral", False, marks=pytest.mark.full),
    pytest.param("ai_sdk", "npm", "retried openai", True, marks=pytest.mark.full),
    pytest.param("ai_sdk", "npm", "retried openai-compatible", True, marks=pytest.mark.full),
    pytest.param("ai_sdk", "npm", "retried cohere", True, marks=pytest.mark.full),
    pytest.param("cohere_ai", "npm", "retried", True, marks=pytest.mark.full),
    pytest.param("llamaindex", "npm", "retried", True, marks=pytest.mark.full),
    pytest.param("voyageai", "npm", "retried", True, marks=pytest.mark.full),
    pytest.param("llama_index", "llama-index", "retried", True, marks=pytest.mark.full),
    pytest.param("litellm", "litellm", "retried", True, marks=pytest.mark.full),
    pytest.param("litellm", "litellm", "routed", False, marks=pytest.mark.full),
    pytest.param("haystack", "haystack", "retried", True, marks=pytest.mark.full),
    pytest.param("haystack", "haystack", "rerank retried", False, marks=pytest.mark.full),
    pytest.param("mteb", "mteb", "retried", True, marks=pytest.mark.full),
    pytest.param("agno", "agents", "retried", True, marks=pytest.mark.full),
    pytest.param("mem0", "agents", "retried", True, marks=pytest.mark.full),
    pytest.param("pydantic_ai", "agents", "retried", True, marks=pytest.mark.full),
    pytest.param("semantic_kernel", "agents", "retried", True, marks=pytest.mark.full),
    pytest.param("chromadb", "retrieval", "retried", True, marks=pytest.mark.full),
    pytest.param("dspy", "retrieval", "retried", True, marks=pytest.mark.full),
    pytest.param("lancedb", "retrieval", "retried", True, marks=pytest.mark.full),
    pytest.param("lancedb", "retrieval", "retried by ollama", True, marks=pytest.mark.full),
    pytest.param("txtai", "retrieval", "retried", True, marks=pytest.mark.full),
]


# Clients of frameworks that do not retry: the driver, its call, what it raises, and what that says.
REFUSED = "as much waiting as it can answer in time"
RAISING = [
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


@pytest.fixture
def crowded() -> Iterator[HttpServer]:
    """One lane, whose first call hangs until `engine.released` is set, and no room for another text."""
    engine = SlowEngine(dim=DIM, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=4), batch=BatchConfig(max_batch_tokens=4))
    settings = ServerSettings(lame_duck_s=0, alias=(RERANKER,))
    with serve_in_thread(settings, config=config, engine=engine) as server:
        threads = [occupy(server, 1, timeout_s=IMPORT_S)]
        wait_until(lambda: len(engine.calls) == 1)
        threads.append(occupy(server, 3, timeout_s=IMPORT_S))
        yield server
        engine.released.set()
        join(threads)


def join(threads: list[threading.Thread]) -> None:
    """Wait until they are done."""
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(("driver", "group", "call", "heeds"), RETRYING)
def test_a_client_that_was_sent_away_comes_again(
    crowded: HttpServer,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    driver: str,
    group: str | None,
    call: str,
    heeds: bool,
) -> None:
    caplog.set_level(logging.INFO, "vecmill.access")
    if group is not None:
        ensure_environment(group)
    url = f"http://127.0.0.1:{crowded.port}"
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(drive, driver, group, url, tmp_path, call)
        wait_until(lambda: outcome.done() or sent_away(crowded) > 0, patience_s=IMPORT_S)
        crowded.engine.released.set()
        assert outcome.result()[call].unwrap() == 2
    assert waited_s(caplog.records) >= (TOLD_S if heeds else 0)


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
    crowded: HttpServer, tmp_path: Path, driver: str, group: str, call: str, kind: str
) -> None:
    ensure_environment(group)
    url = f"http://127.0.0.1:{crowded.port}"
    error = drive(driver, group, url, tmp_path, call)[call].raised()
    assert kind in error.types, error
    assert "as much waiting as it can answer in time" in error.message


@pytest.mark.full
def test_litellms_providers_raise_their_own_error_at_once(crowded: HttpServer, tmp_path: Path) -> None:
    """Whatever number of retries they are given: that is for its router, or its provider of OpenAI."""
    providers = ("cohere", "hosted_vllm", "huggingface", "infinity", "jina_ai", "voyage")
    calls = [f"embed once {name}" for name in providers]
    calls += [f"rerank {name}" for name in providers]
    ensure_environment("litellm")
    outcomes = drive("litellm", "litellm", f"http://127.0.0.1:{crowded.port}", tmp_path, *calls)
    for call in calls:
        error = outcomes[call].raised()
        assert "RateLimitError" in error.types, (call, error)
        assert "as much waiting as it can answer in time" in error.message


@pytest.mark.full
@pytest.mark.parametrize(("driver", "call", "kind", "words"), RAISING)
def test_a_framework_s_client_raises_at_once(
    crowded: HttpServer, tmp_path: Path, driver: str, call: str, kind: str, words: str
) -> None:
    url = f"http://127.0.0.1:{crowded.port}"
    error = drive(driver, GROUPS[driver], url, tmp_path, call)[call].raised()
    assert kind in error.types
    assert words in error.message


def test_the_npm_client_that_was_sent_away_comes_again(
    crowded: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vecmill.access")
    url = f"http://127.0.0.1:{crowded.port}"
    calls = [("embed", {"model": MODEL, "input": ["a text", "another one"]})]
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(drive_npm, url, calls, max_retries=2)
        wait_until(lambda: answers.done() or sent_away(crowded) > 0, patience_s=IMPORT_S)
        crowded.engine.released.set()
        assert len(answers.result()[0]["result"]) == 2
    assert waited_s(caplog.records) >= TOLD_S


def sent_away(server: HttpServer) -> float:
    """How many requests were answered with 429."""
    return server.metric("vecmill_http_errors_total", reason="queue_full")


def waited_s(answered: list[logging.LogRecord]) -> float:
    """How long it took from a 429 to the next request. Fails if there were not both."""
    place = next(place for place, line in enumerate(answered) if vars(line).get("status") == 429)
    refused_at = answered[place].created
    began = [float(line.created - vars(line)["duration_ms"] / 1000) for line in answered[place + 1 :]]
    return min(time_s for time_s in began if time_s >= refused_at) - refused_at
