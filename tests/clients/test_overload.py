"""A client that retries and was sent away with a 429 comes again when it was told to, and is served."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.client_packages import drive, drive_npm, ensure_environment
from support.http_server import DIM, MODEL, HttpServer, occupy, serve_in_thread, wait_until
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill_server.settings import ServerSettings

# Long enough for the slowest package to be imported.
IMPORT_S = 120.0

# The driver and its group, the call, and what comes of it: so many rows.
RETRYING = [
    ("openai", None, "retried"),
    ("openai", "openai-oldest", "retried"),
    ("openai", "providers", "retried"),
    ("cohere", "providers", "retried"),
    ("cohere", "providers", "retried v1"),
    ("voyageai", "providers", "retried"),
    ("mistralai", "providers", "retried"),
    pytest.param("langchain", "langchain", "retried", marks=pytest.mark.full),
    pytest.param("llama_index", "llama-index", "retried", marks=pytest.mark.full),
    pytest.param("litellm", "litellm", "retried", marks=pytest.mark.full),
    pytest.param("haystack", "haystack", "retried", marks=pytest.mark.full),
    pytest.param("haystack", "haystack", "rerank retried", marks=pytest.mark.full),
    pytest.param("mteb", "mteb", "retried", marks=pytest.mark.full),
]


@pytest.fixture
def crowded() -> Iterator[HttpServer]:
    """One lane, whose first call hangs until `engine.released` is set, and no room for another text."""
    engine = FakeEngine(dim=DIM, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=4), batch=BatchConfig(max_batch_tokens=4))
    with serve_in_thread(ServerSettings(lame_duck_s=0), config=config, engine=engine) as server:
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


@pytest.mark.parametrize(("driver", "group", "call"), RETRYING)
def test_a_client_that_was_sent_away_comes_again(
    crowded: HttpServer, tmp_path: Path, driver: str, group: str | None, call: str
) -> None:
    if group is not None:
        ensure_environment(group)
    url = f"http://127.0.0.1:{crowded.port}"
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(drive, driver, group, url, tmp_path, call)
        wait_until(lambda: outcome.done() or sent_away(crowded) > 0, patience_s=IMPORT_S)
        crowded.engine.released.set()
        assert outcome.result()[call].unwrap() == 2
    assert sent_away(crowded) > 0


def test_the_npm_client_that_was_sent_away_comes_again(crowded: HttpServer) -> None:
    url = f"http://127.0.0.1:{crowded.port}"
    calls = [("embed", {"model": MODEL, "input": ["a text", "another one"]})]
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(drive_npm, url, calls, max_retries=2)
        wait_until(lambda: answers.done() or sent_away(crowded) > 0, patience_s=IMPORT_S)
        crowded.engine.released.set()
        assert len(answers.result()[0]["result"]) == 2
    assert sent_away(crowded) > 0


def sent_away(server: HttpServer) -> float:
    """How many requests were answered with 429."""
    return server.metric("vecmill_http_errors_total", reason="queue_full")
