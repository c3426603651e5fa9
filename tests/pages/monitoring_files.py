"""Writes the Grafana board, the alert rules and their lists in docs/ from their declarations.

`make monitoring` runs this; a test compares the files with what it would write.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pages.alert_rules import PAGE, list_alerts, write_pages, write_rules
from pages.board import write_board
from pages.metric_topics import BY_TOPIC, CONDITIONS, kind_of, shown_name
from support.source_tree import ROOT
from vecmill_server.telemetry.metrics.definitions import Definition

FOLDER = ROOT / "services/vecmill_server/src/vecmill_server/deploy/monitoring"
BOARD, RULES = FOLDER / "vecmill-board.json", FOLDER / "vecmill-alerts.yaml"
# What the server's own pages of the alerts say.
ALERT_PAGES = ROOT / "services/vecmill_server/src/vecmill_server/app/routes/alerts.json"
DOCS = ROOT / PAGE


def _mark(name: str, end: str = "") -> str:
    return f"<!-- The {name} below are written by `make monitoring`.{end} -->\n"


def list_metrics() -> Iterator[str]:
    """The lines of the docs that list the metrics, by topic."""
    for topic, definitions in BY_TOPIC.items():
        yield f"### {topic}\n"
        yield "| name | kind | labels | meaning |"
        yield "|---|---|---|---|"
        yield from map(_describe, definitions)
        yield ""


def _describe(definition: Definition) -> str:
    condition = f" Exists {CONDITIONS[definition]}." if definition in CONDITIONS else ""
    labels = ", ".join(definition.labels)
    text = definition.text.replace("|", "\\|")
    return f"| `{shown_name(definition)}` | {kind_of(definition)} | {labels} | {text}{condition} |"


def write_list(page: str, name: str, text: str) -> str:
    """The text of the page in the docs, with the list of that name made anew."""
    begin, end = _mark(name), _mark(name, " End.")
    if begin not in page or end not in page:
        raise SystemExit(f"{DOCS} needs the lines {begin!r} and {end!r}.")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{text.strip()}\n\n{end}{rest.partition(end)[2]}"


def written_files() -> Mapping[Path, str]:
    """The contents of all files that are written, by path."""
    page = write_list(DOCS.read_text("utf-8"), "metrics", "\n".join(list_metrics()))
    return {
        BOARD: write_board(),
        RULES: write_rules(),
        ALERT_PAGES: write_pages(),
        DOCS: write_list(page, "alerts", list_alerts()),
    }


def main() -> None:
    """Write the files."""
    for path, text in written_files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
