"""Nothing is lost, duplicated, swapped or late, whatever fails or hangs up; all counts agree."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chaos.faulty_server import FaultyOptions
from chaos.fleet import Fleet, read_page
from chaos.ledger import ExactRows, NearRows, encode_row, judge
from chaos.storm import WELL_BEHAVED, StormConfig, has_mark
from chaos.weather import Outcome, exact_rows, real_rows, send_weather

NO_SOCKET = -1
# Requests without a guilty text that end with 500: a fault in a call with a single text cannot be told from
# the fault of that text. With whole batches that fail, a quarter of the requests would.
INNOCENT_SHARE = 0.1


def assert_nothing_went_wrong(outcome: Outcome, config: StormConfig) -> None:
    print(f"seed {config.seed}: {outcome.summary()}")
    verdict, texts = outcome.verdict, outcome.total.texts
    assert verdict.faults == {}
    assert set(outcome.imbalances) == {0}
    assert set(outcome.statuses) == {0}
    # Each admitted text ended once; what the clients got is among what was done; nothing was admitted twice.
    assert outcome.total.imbalance == texts["open"] == 0
    assert verdict.served == verdict.ends["200"] <= texts["done"]
    assert texts["admitted"] <= config.texts
    innocent = [failed for failed in verdict.failed if not any(has_mark(config.seed, n) for n in failed)]
    assert len(innocent) <= INNOCENT_SHARE * verdict.statuses.total()
    assert_responses_agree(outcome)


def assert_responses_agree(outcome: Outcome) -> None:
    """Compare the responses that the clients got with those that the servers counted.

    A client that left does not know what its request became.
    """
    counted, got = outcome.total.responses, outcome.verdict.statuses
    for status in counted.keys() | got.keys():
        assert got[status] <= counted[status] <= got[status] + outcome.verdict.left, status
    assert counted.total() <= got.total() + outcome.verdict.left + outcome.retries


def storm(folder: Path, config: StormConfig, *, deadly_calls: Sequence[int] = (), **faults: Any) -> Outcome:
    options = FaultyOptions(NO_SOCKET, config.seed, config.timeout_s, **faults)
    rows = real_rows(config) if options.engine == "real" else exact_rows(config)
    return send_weather(folder, config, Fleet.of(options, deadly_calls), rows)


@pytest.mark.promise("answered-once", "counts-agree", "failure-contained", "lost-lane-noticed", "clean-stop")
def test_every_text_gets_its_own_embedding_or_one_error(tmp_path: Path) -> None:
    config = StormConfig(texts=1_000, seed=20_261, requests_per_s=60.0, replace_every_s=1.0)
    # A lane of the first process hangs. One of its successor dies, if that process starts in time.
    outcome = storm(tmp_path, config, deadly_calls=(10, 10))
    assert_nothing_went_wrong(outcome, config)
    # The weather was bad enough to mean something.
    assert outcome.replacements >= 1
    assert {"200", "500", "504", "left"} <= set(outcome.verdict.ends)
    assert outcome.verdict.served > config.texts / 2


@pytest.mark.full
@pytest.mark.promise("answered-once", "counts-agree", "failure-contained", "lost-lane-noticed", "clean-stop")
def test_every_one_of_a_million_texts_gets_its_own_embedding_or_one_error(tmp_path: Path) -> None:
    config = StormConfig(texts=1_000_000, seed=20_263, requests_per_s=200.0, replace_every_s=20.0)
    outcome = storm(tmp_path, config, deadly_calls=[1_000, 3_000] * 10)
    assert_nothing_went_wrong(outcome, config)
    assert outcome.replacements >= 30
    assert outcome.verdict.served > config.texts / 2


@pytest.mark.full
@pytest.mark.promise("answered-once", "counts-agree", "clean-stop")
def test_every_one_of_100_000_texts_gets_its_own_embedding_of_the_real_engine(tmp_path: Path) -> None:
    config = StormConfig(texts=100_000, seed=20_264, requests_per_s=15.0, replace_every_s=60.0)
    outcome = storm(tmp_path, config, engine="real", deadly_calls=(1_000, 1_000))
    assert_nothing_went_wrong(outcome, config)
    assert outcome.verdict.served > config.texts / 2


@pytest.mark.promise("counts-agree")
def test_without_clients_that_leave_the_counts_are_those_of_the_ledger(tmp_path: Path) -> None:
    config = StormConfig(texts=500, seed=20_265, frequencies=WELL_BEHAVED, requests_per_s=100.0)
    outcome = storm(tmp_path, config, is_faulty=False)
    verdict, texts = outcome.verdict, outcome.total.texts
    refused = verdict.ends["429"]
    assert verdict.faults == {}
    assert texts["admitted"] == texts["done"] == verdict.served == config.texts - refused
    assert outcome.total.responses == verdict.statuses


def test_planted_faults_of_the_server_are_found(tmp_path: Path) -> None:
    config = StormConfig(
        texts=800, seed=20_266, frequencies=WELL_BEHAVED, requests_per_s=100.0, timeout_s=60.0, patience_s=1.5
    )
    plants = ("loss", "swap", "duplicate", "counter")
    outcome = storm(tmp_path, config, is_faulty=False, plants=plants)
    print(outcome.summary())
    assert {"lost", "swapped", "duplicated"} <= set(outcome.verdict.faults)
    assert outcome.imbalances[1] > 0


# The check itself, on logs that are written by hand.

VECTORS = np.eye(4, dtype=np.float32)
Spoil = Callable[[list[dict[str, Any]]], object]
NAMES = [encode_row(row) for row in VECTORS]


def write_log(path: Path, spoil: Spoil, rows: ExactRows | NearRows) -> Path:
    """A log of two requests of two texts, spoilt."""
    entries: list[dict[str, Any]] = []
    for number, first in ((0, 0), (1, 2)):
        sent = {"number": number, "first": first, "count": 2, "at_s": 0.0, "timeout_s": 1.0, "left": False}
        kept = [rows.keep(name) for name in NAMES[first : first + 2]]
        ended = {"number": number, "ended_s": 1.0, "status": 200, "echo": str(number), "rows": kept}
        entries += [{"event": "sent", **sent}, {"event": "ended", **ended, "surplus": 0}]
    spoil(entries)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def swap(entries: list[dict[str, Any]]) -> None:
    entries[1]["rows"], entries[3]["rows"] = entries[3]["rows"], entries[1]["rows"]


SPOILT: dict[str, tuple[Spoil, dict[str, int]]] = {
    "nothing": (lambda entries: None, {}),
    "swap": (swap, {"swapped": 4}),
    "swap within": (lambda entries: entries[1]["rows"].reverse(), {"swapped": 2}),
    "no response": (lambda entries: entries.pop(3), {"lost": 2}),
    "never sent": (lambda entries: entries.clear(), {"lost": 4}),
    "a row missing": (lambda entries: entries[1]["rows"].pop(), {"lost": 1}),
    "a row twice": (lambda entries: entries[1]["rows"].append(entries[1]["rows"][0]), {"duplicated": 1}),
    "a response twice": (lambda entries: entries.append(entries[1]), {"unexpected": 1}),
    "more bytes": (lambda entries: entries[1].update(surplus=9), {"duplicated": 2}),
    "another's id": (lambda entries: entries[1].update(echo="7"), {"unexpected": 2}),
    "too late": (lambda entries: entries[3].update(ended_s=19.0), {"late": 2}),
    "late, read late": (lambda entries: entries[3].update(ended_s=19.0, lag_s=16.0), {}),
    "later than that": (lambda entries: entries[3].update(ended_s=19.0, lag_s=14.0), {"late": 2}),
    "no such status": (lambda entries: entries[3].update(status=418), {"undocumented": 2}),
}


@pytest.mark.parametrize(("spoil", "faults"), SPOILT.values(), ids=SPOILT.keys())
def test_the_check_finds_each_kind_of_fault(tmp_path: Path, spoil: Spoil, faults: dict[str, int]) -> None:
    for rows in (ExactRows(iter(NAMES)), NearRows(VECTORS)):
        assert judge(write_log(tmp_path / "log", spoil, rows), 4, rows).faults == faults


def test_an_embedding_of_no_text_is_found(tmp_path: Path) -> None:
    stranger = encode_row(np.full(4, 0.5, np.float32))
    for rows in (ExactRows(iter(NAMES)), NearRows(VECTORS)):
        log = write_log(tmp_path / "log", lambda entries: None, rows)
        first, *others = map(json.loads, log.read_text().splitlines())
        others[0]["rows"] = [rows.keep(stranger)] * 2
        log.write_text("".join(json.dumps(entry) + "\n" for entry in (first, *others)))
        assert judge(log, 4, rows).faults == {"corrupted": 2}


@pytest.mark.parametrize("page", ["", "# TYPE up gauge\nup 1\n", "vecmill_texts_open 0\n"])
def test_a_page_without_counts_does_not_balance(page: str) -> None:
    with pytest.raises(ValueError, match="no counts of admitted"):
        read_page(page)
