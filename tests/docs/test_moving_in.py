"""`docs/moving-in.md` names options and metrics that there are, and all of the metrics."""

import re

from support.source_tree import ROOT
from vecmill_server.cli import serve
from vecmill_server.metric_aliases import ServedRoutes, infinity_aliases, tei_aliases

PAGE = (ROOT / "docs/moving-in.md").read_text("utf-8")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
METRIC = r"\b((?:http|te)_[a-z_]+)\b"


def test_options_that_take_the_place_of_others_exist() -> None:
    known = {option for parameter in serve.params for option in parameter.opts}
    named = {option for row in ROWS if len(row) == 3 for option in re.findall(r"--[a-z-]+", row[1])}
    assert len(named) > 15
    assert named - known == set()


def test_the_metrics_that_are_listed_are_those_that_there_are() -> None:
    served = ServedRoutes(methods={}, computing=frozenset(), tasks=lambda model: None)
    aliases = {alias.name: alias.kind for alias in [*infinity_aliases(served), *tei_aliases(served)]}
    written = {name + "_total" * (kind == "counter") for name, kind in aliases.items()}
    listed = {name for row in ROWS if len(row) == 2 for name in re.findall(METRIC, row[0])}
    assert listed == written
    in_prose = "\n".join(line for line in PAGE.splitlines() if not line.startswith("|"))
    missing = set(re.findall(METRIC, in_prose)) - {"te_request_count"}
    assert missing
    assert missing & written == set()
