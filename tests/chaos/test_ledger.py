"""Nothing is lost, duplicated or swapped, whatever fails, hangs up or runs out of time."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chaos.ledger import Verdict, encode_row, judge
from chaos.storm import StormConfig, make_texts, send_storm
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import hash_row
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer

TESTS = Path(__file__).parent.parent


@contextmanager
def faulty_server(seed: int, plant: str) -> Iterator[int]:
    """The port of a faulty server of its own, which must end cleanly."""
    command = [sys.executable, str(TESTS / "chaos/faulty_server.py"), str(seed), plant]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            match = re.search(r":(\d+)$", line.strip())
            assert match, f"the server said {line!r} instead of its address"
            yield int(match[1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            process.wait(30)


def scrape(port: int) -> dict[str, float]:
    """Texts by what became of them, as /metrics tells it."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    ended = {
        sample.labels["outcome"]: sample.value
        for sample in samples
        if sample.name == "vecmill_texts_finished_total"
    }
    (admitted,) = (s.value for s in samples if s.name == "vecmill_texts_admitted_total")
    return ended | {"admitted": admitted}


def weather(config: StormConfig, plant: str = "none") -> tuple[Verdict, dict[str, float]]:
    """Send a storm to a faulty server; say what came out, and what the server counted."""
    texts = make_texts(config)
    tokenizer = Tokenizer.load(describe_model(locate_model()))
    sequences = tokenizer.encode(texts)
    row_of = {
        text: encode_row(hash_row(sequence.token_ids, 384))
        for text, sequence in zip(texts, sequences, strict=True)
    }
    with faulty_server(config.seed, plant) as port:
        exchanges = asyncio.run(send_storm(port, texts, config))
        counts = scrape(port)
    assert sum(len(exchange.texts) for exchange in exchanges) == len(texts)
    return judge(exchanges, row_of), counts


def assert_nothing_went_wrong(config: StormConfig) -> None:
    verdict, counts = weather(config)
    print(f"seed {config.seed}: {verdict}; the server counted {counts}")
    assert verdict.is_clean, verdict
    # Each admitted text ended once; what the clients got is among what was done; nothing was admitted twice.
    assert counts["admitted"] == counts["done"] + counts["failed"] + counts["expired"] + counts["cancelled"]
    assert verdict.served == verdict.ends["200"] <= counts["done"]
    assert counts["admitted"] <= config.texts
    # The weather was bad enough to mean something.
    assert min(counts["failed"], counts["expired"], counts["cancelled"]) > 0
    assert {"200", "500", "504", "left"} <= set(verdict.ends)
    assert verdict.served > config.texts / 2


def test_every_text_gets_its_own_row_or_one_error() -> None:
    assert_nothing_went_wrong(StormConfig(texts=10_000, seed=20_261))


@pytest.mark.full
def test_every_one_of_100_000_texts_gets_its_own_row_or_one_error() -> None:
    assert_nothing_went_wrong(StormConfig(texts=100_000, seed=20_262))


def test_the_check_finds_a_planted_swap() -> None:
    verdict, _ = weather(StormConfig(texts=2_000, seed=20_263), "swap")
    assert verdict.swapped > 0


def test_the_check_finds_a_planted_loss() -> None:
    verdict, _ = weather(StormConfig(texts=400, seed=20_264, patience_s=2.0), "loss")
    assert verdict.lost > 0
