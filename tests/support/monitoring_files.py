"""Writes the Grafana board, the alert rules and the lists of docs/monitoring.md from their declarations.

`make monitoring` runs this; a test compares the files with what it would write.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from support.alert_rules import PAGE, list_alerts, write_rules
from support.board import write_board
from support.source_tree import ROOT
from vecmill_server.telemetry.metrics.definitions import BY_TOPIC, Definition

FOLDER = ROOT / "services/vecmill_server/src/vecmill_server/deploy/monitoring"
BOARD, RULES = FOLDER / "vecmill-board.json", FOLDER / "vecmill-alerts.yaml"
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
    condition = f" Exists {definition.condition}." if definition.condition else ""
    labels = ", ".join(definition.labels)
    text = definition.text.replace("|", "\\|")
    return f"| `{definition.shown_name}` | {definition.kind} | {labels} | {text}{condition} |"


def write_docs(page: str) -> str:
    """The text of the page in the docs, with its lists made anew."""
    for name, text in (("metrics", "\n".join(list_metrics())), ("alerts", list_alerts())):
        begin, end = _mark(name), _mark(name, " End.")
        if begin not in page or end not in page:
            raise SystemExit(f"{DOCS} needs the lines {begin!r} and {end!r}.")
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n{text.strip()}\n\n{end}{rest.partition(end)[2]}"
    return page


def written_files() -> Mapping[Path, str]:
    """The contents of all files that are written, by path."""
    return {BOARD: write_board(), RULES: write_rules(), DOCS: write_docs(DOCS.read_text("utf-8"))}


def main() -> None:
    """Write the files."""
    for path, text in written_files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
