"""The queries of KEDA's triggers, run by promtool: over made-up pods, and over scrapes of a live server."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.rendering import render, select
from monitoring.faults import INTERVAL_S, JOB, Recording, SlowEngine, ask, clients, duration, replay
from monitoring.promql import selectors
from support.http_server import MODEL, serve_in_thread
from vecmill.config import BatchConfig, MillConfig, QueueConfig

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("chart_tools")]

PODS = {
    "one": ("prod", "vecmill-blue-5c9d8f7b6-x2x4z"),
    "two": ("prod", "vecmill-blue-5c9d8f7b6-q7k9p"),
    "green": ("prod", "vecmill-green-6d8c9b7f5-z5z5z"),
    "other": ("prod", "another-vecmill-blue-5c9d8f7b6-aaaaa"),
    "elsewhere": ("test", "vecmill-blue-5c9d8f7b6-bbbbb"),
}


def series_of(name: str, pod: str, values: str, **labels: str) -> Mapping[str, str]:
    """Return a series of a pod, as promtool reads it."""
    namespace, full_name = PODS[pod]
    written = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {"series": f'{name}{{namespace="{namespace}",pod="{full_name}"{written}}}', "values": values}


def ask_promtool(folder: Path, number: int, series: list[Mapping[str, str]], expected: float | None) -> None:
    """Fail unless the query of a trigger of KEDA gives this value; `None`: no value."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    found = [] if expected is None else [{"labels": "{}", "value": expected}]
    query = {"expr": triggers()[number]["query"], "eval_time": "4m", "exp_samples": found}
    file = folder / "query.yaml"
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [query]}
    file.write_text(yaml.safe_dump({"tests": [test]}), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_keda_counts_the_pods_of_its_colour_alone(tmp_path: Path) -> None:
    name = "vecmill_queue_seconds"
    # The queues of two processes of a pod are computed side by side, so their mean counts.
    processes = [
        series_of(name, pod, f"{seconds}x20", model="a", process=process)
        for pod, seconds in (("one", 0.25), ("two", 2), ("green", 4), ("other", 8), ("elsewhere", 16))
        for process in ("0", "1")
    ]
    ask_promtool(tmp_path, 0, [*processes, series_of(name, "one", "1x20", model="b")], 3.25)
    waits = [
        each
        for pod, seconds in (("one", 1), ("two", 0.5), ("green", 4), ("other", 8), ("elsewhere", 16))
        for each in (
            series_of("vecmill_queue_wait_seconds_sum", pod, f"0+{30 * seconds}x20", model="a"),
            series_of("vecmill_queue_wait_seconds_count", pod, "0+30x20", model="a"),
        )
    ]
    ask_promtool(tmp_path, 1, waits, 1.5)


def test_keda_keeps_the_pods_without_data_and_removes_them_without_texts(tmp_path: Path) -> None:
    for number in (0, 1):
        ask_promtool(tmp_path, number, [], None)
    ask_promtool(tmp_path, 0, [series_of("vecmill_queue_seconds", "one", "0x20", model="a")], 0.0)
    counts = ("vecmill_queue_wait_seconds_sum", "vecmill_queue_wait_seconds_count")
    ask_promtool(tmp_path, 1, [series_of(name, "one", "70x20", model="a") for name in counts], 0.0)


def triggers() -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = select(render("keda"), "ScaledObject")["spec"]["triggers"]
    return [trigger["metadata"] for trigger in found]


def asks_for_a_pod(folder: Path, recording: Recording) -> list[bool]:
    """Whether each trigger asks for more pods than the one that was recorded, as autoscalers compute it."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    namespace, pod = PODS["one"]
    found = []
    for number, trigger in enumerate(triggers()):
        names = {selector.name for selector in selectors(trigger["query"])}
        series = [
            {
                "series": name.replace(f'job="{JOB}"', f'job="{JOB}",namespace="{namespace}",pod="{pod}"'),
                "values": " ".join(values),
            }
            for name, values in replay(recording, names).items()
        ]
        wanted = f"ceil(({trigger['query']}) / {trigger['threshold']}) > 1"
        query = {"expr": wanted, "eval_time": duration([recording]), "exp_samples": []}
        test = {"interval": f"{INTERVAL_S}s", "input_series": series, "promql_expr_test": [query]}
        file = folder / f"query-{number}.yaml"
        file.write_text(yaml.safe_dump({"tests": [test]}, width=1_000_000), encoding="utf-8")
        done = subprocess.run(
            [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
        )
        assert "err" not in done.stderr.lower(), done.stderr
        found.append(done.returncode != 0)  # it expected no result
    return found


def test_a_load_whose_queue_waits_a_second_asks_for_a_pod(tmp_path: Path) -> None:
    recording = Recording()
    config = MillConfig(cores=1, batch=BatchConfig(max_batch_tokens=8), queue=QueueConfig(target_wait_s=1e6))
    engine = SlowEngine(0.2)
    with serve_in_thread(config=config, engine=engine) as server, clients(server, 7):
        recording.steps(server, lambda _: time.sleep(0.5), 12)
        names = [f"vecmill_queue_wait_seconds_{part}" for part in ("sum", "count")]
        waited_s, texts = (server.metric(name, model=MODEL) for name in names)
    assert 0.8 < waited_s / texts < 1.6
    assert asks_for_a_pod(tmp_path, recording) == [True, True]


def test_a_load_without_a_queue_asks_for_none(tmp_path: Path) -> None:
    recording = Recording()
    with serve_in_thread() as server:
        recording.steps(server, partial(ask, server), 12)
    assert asks_for_a_pod(tmp_path, recording) == [False, False]
