"""What `vecmill check` and `vecmill optimize` found, at /v1/accuracy/{id} and in /info."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from support.http_server import QUIET, HttpServer, SlowToLoad, serve_in_thread
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands.main import main
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.mill import Mill
from vecmill.models import locate_model
from vecmill.serving_plan.plans import Accuracy
from vecmill.values.clock import Clock
from vecmill.verification import reference
from vecmill.verification.check_records import FOLDER, CheckRecord, Finding, find_record, write_record
from vecmill_server.app.routes.accuracy import REPORT_AGE_S

NAME = "owner/tiny"
ACCURACY = Accuracy("fp32", 200, 0.01, 0.3, 0.9991, 0.9999, None)


def check(folder: Path, cache: Path, *options: str, count: int = 24) -> Result:
    arguments = ["check", str(folder), "--count", str(count), "--cache-dir", str(cache), *options]
    return CliRunner().invoke(main, arguments)


@pytest.fixture(autouse=True)
def _without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is vecmill's own: importing another takes longer than all of these tests."""
    monkeypatch.setattr(reference, "find_spec", lambda name: None)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny")


class Served:
    """A server of the tiny model with the fake engine, whose reports are as old as the test says."""

    def __init__(self, server: HttpServer, now: list[float]) -> None:
        self.server = server
        self._now = now

    def record(self, *findings: Finding) -> Path:
        """Write a record of these findings, as a check does; of one by default."""
        (model,) = self.server.service.catalog
        cache = model.mill.config.cache_dir
        assert cache is not None
        findings = findings or (Finding(None, ACCURACY, is_within=True),)
        record = CheckRecord(datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), False, findings)
        return write_record(record, model.mill.description, model.mill.info, cache)

    def listed(self) -> Any:
        """The entries of /v1/models."""
        return self.server.client.get("/v1/models").json()["data"]

    def report(self, name: str = NAME) -> Any:
        """The report, made anew."""
        self._now[0] += 2 * REPORT_AGE_S
        answer = self.server.client.get(f"/v1/accuracy/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def served(model: Path, tmp_path: Path) -> Iterator[Served]:
    now = [0.0]
    clock: Clock = lambda: now[0]  # noqa: E731
    description = replace(describe_model(locate_model(str(model))), name=NAME)
    config = MillConfig(cache_dir=tmp_path / "cache")
    settings = replace(QUIET, alias=("short",))
    with serve_in_thread(settings, config=config, models=[description], page_clock=clock) as server:
        yield Served(server, now)


def test_a_check_beside_a_running_server_is_shown(served: Served, model: Path, tmp_path: Path) -> None:
    before = served.report()
    assert (before["id"], before["object"]) == (NAME, "model.accuracy")
    assert (before["engine"], before["precision"], before["device"]) == ("fake", "exact", "none")
    assert len(before["fingerprint"]) == 32
    (listed,) = (each for each in served.listed() if each["id"] == NAME)
    assert (before["space"], before["exact"]) == (listed["space"], listed["exact"])
    assert before["optimized"] is before["check"] is None
    assert check(model, tmp_path / "cache", "--engine", "fake").exit_code == 1
    after = served.report()
    found = after.pop("check")
    assert after | {"check": None} == before
    assert found["checked_at"].endswith("Z")
    assert found["own_texts"] is False
    (finding,) = found["findings"]
    assert (finding["side"], finding["is_within"], finding["texts"]) == (None, False, 24)
    assert finding["reference"].startswith("vecmill's own fp32 ONNX engine")
    assert finding["largest_difference"] > 0.1
    assert -1 <= finding["cosine_min"] < finding["cosine_mean"] < 1


def test_info_has_the_report_of_the_first_model(served: Served) -> None:
    served.record()
    report = served.report()
    assert report["check"] is not None
    assert served.server.client.get("/info").json()["accuracy"] == report


def test_every_name_of_a_model_leads_to_its_report(served: Served) -> None:
    report = served.report()
    for name in ("short", "tiny", "OWNER/Tiny", "owner%2Ftiny", "owner/tiny:latest"):
        assert served.report(name) == report
    answer = served.server.client.get("/v1/accuracy/nobody/here")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_what_optimize_measured_is_shown(served: Served) -> None:
    (served_model,) = served.server.service.catalog
    served_model.mill.accuracy = ACCURACY
    assert served.report()["optimized"] == asdict(ACCURACY)


def test_own_texts_are_counted_and_not_shown(served: Served, model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("the secret of somebody\nanother secret\n", "utf-8")
    check(model, tmp_path / "cache", "--engine", "fake", "--texts", str(tmp_path / "texts"))
    found = served.report()["check"]
    assert (found["own_texts"], found["findings"][0]["texts"]) == (True, 2)
    (record,) = (tmp_path / "cache" / FOLDER).iterdir()
    assert "secret" not in record.read_text("utf-8")


@pytest.mark.promise("findings-match")
def test_a_record_is_shown_for_the_same_weights_and_engine_alone(tmp_path: Path) -> None:
    folder, cache = save_tiny_bert(tmp_path / "model"), tmp_path / "cache"
    result = check(folder, cache)
    assert result.exit_code == 0, result.output

    def found(folder: Path, **change: Any) -> Any:
        async def find() -> Any:
            async with Mill(str(folder), MillConfig(cache_dir=cache)) as mill:
                return find_record(mill.description, replace(mill.info, **change), cache)

        return asyncio.run(find())

    record = found(folder)
    assert record is not None
    assert record.findings[0].is_within
    for change in ({"precision": "bf16"}, {"device": "cuda:0"}, {"name": "openvino"}):
        assert found(folder, **change) is None
    assert found(save_tiny_bert(tmp_path / "same")) == record
    for number, other in enumerate((TinyBert(seed=1), TinyBert(pooling="cls"), TinyBert(max_seq_length=40))):
        assert found(save_tiny_bert(tmp_path / f"other {number}", other)) is None
    save_tiny_bert(folder, TinyBert(seed=2))
    assert found(folder) is None


def test_a_later_check_replaces_the_record(served: Served, model: Path, tmp_path: Path) -> None:
    for count in (24, 30):
        check(model, tmp_path / "cache", "--engine", "fake", count=count)
        assert served.report()["check"]["findings"][0]["texts"] == count
    assert len(list((tmp_path / "cache" / FOLDER).iterdir())) == 1


def test_a_damaged_record_is_not_shown(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    for damage in (
        "",
        "{",
        "[]",
        "[" * 5000,
        '{"checked_at": "yesterday"}',
        '{"checked_at": "2026-01-01T00:00:00", "has_own_texts": false, "findings": []}',
        '{"checked_at": 5, "has_own_texts": false, "findings": []}',
        '{"checked_at": "2026-01-01T00:00:00Z", "has_own_texts": false, "findings": [{"side": null}]}',
        '{"checked_at": "2026-01-01T00:00:00Z", "has_own_texts": false, "findings": [7]}',
        "x" * 1_000_000,
    ):
        record = served.record()
        assert served.report()["check"] is not None
        record.write_text(damage, "utf-8")
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert served.report()["check"] is None, damage[:100]
        assert str(record) in caplog.text


def test_both_sides_are_shown_and_infinite_differences_are_numbers(served: Served) -> None:
    served.record(
        Finding("documents", replace(ACCURACY, largest_difference=float("inf")), is_within=False),
        Finding("queries", ACCURACY, is_within=True),
    )
    of_documents, of_queries = served.report()["check"]["findings"]
    assert (of_documents["side"], of_queries["side"]) == ("documents", "queries")
    assert of_documents["largest_difference"] > 1e300
    assert of_queries == {"side": "queries", "is_within": True, **asdict(ACCURACY)}


def test_a_cache_that_cannot_be_written_is_told_and_changes_no_status(model: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / FOLDER).write_text("in the way", "utf-8")
    result = check(model, tmp_path / "cache")
    assert result.exit_code == 0
    assert "cannot be written" in result.stderr


def test_the_report_needs_a_key_where_the_models_do() -> None:
    with serve_in_thread(replace(QUIET, api_key=("sesame",))) as server:
        path = "/v1/accuracy/all-MiniLM-L6-v2"
        for needed in (path, "/v1/models", "/info"):
            assert server.client.get(needed).status_code == 401
            key = {"authorization": "Bearer sesame"}
            assert server.client.get(needed, headers=key).status_code == 200


def test_a_model_that_loads_has_no_report_yet() -> None:
    engine = SlowToLoad()
    with serve_in_thread(engine=engine, wait=False) as server:
        answer = server.client.get("/v1/accuracy/all-MiniLM-L6-v2")
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        engine.may_load.set()
