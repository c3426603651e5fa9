"""`docs/compared.md` names options that there are, and `docs/monitoring.md` all metrics of other servers."""

import re
import shlex

import pytest

from support.source_tree import ROOT
from vecmill_server.cli.advice import OPTIONS
from vecmill_server.cli.serve import serve
from vecmill_server.telemetry.metrics.metric_aliases import (
    ServedRoutes,
    infinity_aliases,
    tei_aliases,
    vllm_aliases,
)

PAGE = (ROOT / "docs/compared.md").read_text("utf-8")
DASHBOARDS = (ROOT / "docs/monitoring.md").read_text("utf-8")
ROWS, METRIC_ROWS = (
    [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    for page in (PAGE, DASHBOARDS)
)
METRIC = r"\b((?:(?:http|te)_|vllm:)[a-z0-9_]+)\b"


def test_options_that_take_the_place_of_others_exist() -> None:
    known = {option for parameter in serve.params for option in parameter.opts}
    named = {option for row in ROWS if len(row) == 3 for option in re.findall(r"--[a-z-]+", row[1])}
    assert len(named) > 15
    assert named - known == set()


def test_the_metrics_that_are_listed_are_those_that_there_are() -> None:
    served = ServedRoutes(methods={}, computing=frozenset(), tasks=lambda model: None)
    aliases = {
        alias.name: alias.kind
        for alias in [*infinity_aliases(served), *tei_aliases(served), *vllm_aliases(served)]
    }
    written = {name + "_total" * (kind == "counter") for name, kind in aliases.items()}
    listed = {name for row in METRIC_ROWS for name in re.findall(METRIC, row[0])}
    assert listed == written
    in_prose = "\n".join(line for line in DASHBOARDS.splitlines() if not line.startswith("|"))
    missing = set(re.findall(METRIC, in_prose)) - {"te_request_count"}
    assert missing
    assert missing & written == set()


def commands_of(image: str) -> list[list[str]]:
    """What stands after the name of an image in each `docker run` of the page."""
    commands = re.findall(r"^docker run (?:.*\\\n)*.*$", PAGE, flags=re.MULTILINE)
    split = [shlex.split(command) for command in commands]
    return [words[place + 1 :] for words in split for place, word in enumerate(words) if image in word]


def test_the_translated_containers_have_options_that_the_server_reads() -> None:
    translated = commands_of("vecmill:cpu")
    assert len(translated) == 2
    for arguments in translated:
        assert serve.make_context("serve", list(arguments)).params["models"]


@pytest.mark.parametrize("image", ["infinity:latest-cpu", "text-embeddings-inference:"])
def test_the_containers_of_others_have_options_that_are_explained(image: str) -> None:
    (arguments,) = commands_of(image)
    given = {word for word in arguments if word.startswith("--")}
    assert len(given) >= 5
    known = {option for parameter in serve.params for option in parameter.opts}
    assert given - known - set(OPTIONS) == set()


def test_the_page_and_the_error_messages_name_the_same_replacements() -> None:
    columns = [(row[0], row[1] + row[2]) for row in ROWS if len(row) == 3]
    for option, advice in OPTIONS.items():
        if option.startswith("--no-") or not option.startswith("--"):
            continue
        ours = " ".join(said for theirs, said in columns if re.search(rf"`{option}\b(?!-)", theirs))
        assert ours, f"{option} is not in a table"
        if not advice.text.startswith("not "):
            named = re.findall(r"--[a-z-]+", advice.text)
            assert [name for name in named if name not in ours] == [], option
    for advice in OPTIONS.values():
        for value, name in advice.names.items():
            assert any(f"`{value}`" in theirs or f" {value}`" in theirs for theirs, said in columns), value
            assert any(f"`{name}`" in said or f" {name}`" in said for theirs, said in columns), name
