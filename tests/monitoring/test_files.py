"""The board, the alert rules and the page of the docs are current, and name only what a server exposes.

`dashboard.jsonschema.json` is Grafana's schema of boards, as published with its foundation SDK (Apache 2.0).
"""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from monitoring.promql import Selector, problems, selectors
from pages.alert_rules import ALERTS, SERVER
from pages.board import COLUMNS, VARIABLES, list_panels
from pages.board_panels import COLLAPSED, ROWS
from pages.board_queries import OWN_ROUTES
from pages.metric_topics import all_definitions
from pages.monitoring_files import BOARD, DOCS, RULES, written_files
from support.http_server import serve_in_thread
from support.source_tree import ROOT
from vecmill_server.app import list_routes
from vecmill_server.cli.serve import serve
from vecmill_server.telemetry.metrics import definitions

SCHEMA = Path(__file__).parent / "dashboard.jsonschema.json"
# Metrics that no panel shows: of virtual memory, and what other metrics tell better.
NOT_SHOWN = {
    "process_virtual_memory_bytes",
    definitions.TEXTS_OPEN.name,
    definitions.TEXTS_ADMITTED.name,
    definitions.QUEUE_TOKENS.name,
}


@pytest.fixture(scope="module")
def board() -> Any:
    return json.loads(BOARD.read_text("utf-8"))


def queries(board: Any) -> Iterator[tuple[str, str, str]]:
    """The title, the expression and the legend of each query of a board."""
    for panel in list_panels(board):
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target.get("legendFormat", "")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


def test_the_files_are_those_that_make_monitoring_writes() -> None:
    for path, text in written_files().items():
        assert path.read_text("utf-8") == text, f"{path.relative_to(ROOT)}: run `make monitoring`"


def test_the_board_follows_grafana_s_schema(board: Any) -> None:
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text("utf-8")))
    assert [error.message for error in validator.iter_errors(board)] == []
    board["panels"][1]["gridPos"]["width"] = 7
    assert not validator.is_valid(board)


@pytest.mark.promise("alerts-true")
def test_the_queries_of_the_board_name_what_is_exposed(board: Any) -> None:
    found = {title: problems(expression, legend) for title, expression, legend in queries(board)}
    assert {title: list_ for title, list_ in found.items() if list_} == {}
    assert len(found) == sum(map(len, ROWS.values()))


def test_rows_whose_series_need_an_option_are_collapsed(board: Any) -> None:
    rows = {panel["title"]: panel for panel in board["panels"] if panel["type"] == "row"}
    assert list(rows) == list(ROWS)
    for title, row in rows.items():
        assert row["collapsed"] == (title in COLLAPSED)
        inside = [panel["title"] for panel in row.get("panels") or ()]
        assert inside == [panel.title for panel in ROWS[title] if row["collapsed"]]
    ids = [panel["id"] for panel in list_panels(board)]
    assert len(set(ids)) == len(ids)
    for panel in list_panels(board):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]


def test_probes_and_scrapes_are_not_among_the_requests(board: Any) -> None:
    """As in the console, whose list is the same."""
    with serve_in_thread() as server:
        names = {route.name for route in list_routes(server.service)}
    assert set(OWN_ROUTES) <= names
    assert {"livez", "readyz", "health", "metrics"} <= set(OWN_ROUTES)
    script = (ROOT / "services/vecmill_server/src/vecmill_server/app/console/assets/load.js").read_text(
        "utf-8"
    )
    listed = re.search(r"const OWN = new Set\(\[(.*?)\]\);", script, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == set(OWN_ROUTES)
    shown = {title: expression for title, expression, _ in queries(board)}
    for title in ("Requests by route", "Requests by status"):
        (selector,) = selectors(shown[title])
        assert set(dict(selector.matchers)["route"].split("|")) == set(OWN_ROUTES)


def test_the_variables_of_the_board_are_labels_of_metrics() -> None:
    for name, (_, query) in VARIABLES.items():
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()  # type: ignore[union-attr]
        assert label == name
        assert problems(metric) == []
        (selector,) = selectors(metric)
        assert label in selector.labels


def test_every_query_follows_the_variables_of_the_board(board: Any) -> None:
    for title, expression, _ in queries(board):
        for selector in selectors(expression):
            matchers = dict(selector.matchers)
            wanted = {"job", "instance"} | ({"model"} & selector.labels)
            assert {label: matchers.get(label) for label in wanted} == {one: f"${one}" for one in wanted}, (
                title
            )


def test_the_board_shows_every_metric(board: Any) -> None:
    shown = {selector.definition for _, expression, _ in queries(board) for selector in selectors(expression)}
    assert {one.name for one in set(all_definitions()) - shown} == NOT_SHOWN


@pytest.mark.promise("alerts-true")
def test_the_rules_name_what_is_exposed() -> None:
    assert len(rules()) == len(ALERTS)
    for rule in rules():
        assert problems(rule["expr"]) == [], rule["alert"]
        asked = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        exposed = {label for selector in selectors(rule["expr"]) for label in selector.labels}
        assert asked - exposed == set(), rule["alert"]


@pytest.mark.parametrize(
    ("expression", "legend", "problem"),
    [
        ("rate(vecmill_texts_total[5m])", "", "there is no metric vecmill_texts_total"),
        ("vecmill_queue_seconds{route='a'}", "", "vecmill_queue_seconds has no label route"),
        ("vecmill_lane_state{state=~'hung|lost'}", "", "state of vecmill_lane_state is never lost"),
        ("sum by (route) (vecmill_queue_seconds)", "", "no metric of the expression has the label route"),
        ("up and on (model) vecmill_build_info", "", "no metric of the expression has the label model"),
        ("vecmill_queue_seconds", "{{lane}}", "no metric of the expression has the label lane"),
        ("max_over_time((vecmill_batch_texts)[5m:1m])", "", "there is no metric vecmill_batch_texts"),
    ],
)
def test_what_is_not_exposed_is_found(expression: str, legend: str, problem: str) -> None:
    assert problems(expression, legend) == [problem]


def test_what_prometheus_adds_is_known() -> None:
    assert problems("up{job='a'} == 0", "{{instance}}") == []
    assert Selector("up", ()).labels == {"job", "instance"}


def test_each_alert_is_in_the_docs() -> None:
    _, _, alerts = DOCS.read_text("utf-8").partition("\n## Rules\n")
    headings = [line for line in alerts.splitlines() if line.startswith("### ")]
    assert headings == [f"### {rule['alert']}" for rule in rules()]
    for rule in rules():
        assert len(rule["annotations"]["description"].split()) > 20


def test_each_alert_leads_to_its_page_on_the_server_itself() -> None:
    with serve_in_thread() as server:
        for alert, rule in zip(ALERTS, rules(), strict=True):
            url = rule["annotations"]["runbook_url"]
            assert url.endswith(f"/alerts/{alert.name}") == alert.has_server
            assert url.startswith(SERVER) == alert.has_server
            page = server.client.get(f"/alerts/{alert.name}")
            assert page.status_code == 200
            shown = unescape(re.sub("<[^>]+>", "", page.text))
            for text in (alert.condition, alert.action):
                assert text.replace("`", "") in shown
            assert alert.expression in shown


def test_the_options_that_the_pages_name_exist() -> None:
    known = {option for parameter in serve.params for option in (*parameter.opts, *parameter.secondary_opts)}
    pages = "".join(page.read_text("utf-8") for page in (DOCS, ROOT / "docs/security.md"))
    named = set(re.findall(r"`(--[a-z-]+)", pages))
    assert len(named) >= 5
    assert named - known == set()
