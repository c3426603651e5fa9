"""README.md and docs/compared.md have the published results, as a table and as a chart."""

import re
from xml.etree import ElementTree

import pytest

from bench.peers.overview import (
    CHART,
    CHARTED,
    COLUMNS,
    PAGE,
    RESULTS,
    SHOWN,
    Row,
    draw_chart,
    read_runs,
    replace_table,
    write_table,
    written_files,
)
from bench.peers.results import Comparison
from support.source_tree import ROOT

COMPARED_TEXT = " ".join((ROOT / "docs/compared.md").read_text("utf-8").split())
README_TEXT = " ".join(PAGE.read_text("utf-8").split())


def test_the_page_and_the_chart_are_those_of_the_published_results() -> None:
    for path, text in written_files().items():
        assert path.read_text("utf-8") == text, f"{path.name}: run `make bench-overview`"
    assert f"({CHART.relative_to(PAGE.parent)})" in PAGE.read_text("utf-8")


def test_the_table_has_every_server_with_its_figures_and_its_run() -> None:
    ours, beside_tei = read_runs()
    assert [row.name for row in ours.rows if row.is_ours] == [
        row.name for row in beside_tei.rows if row.is_ours
    ]
    assert beside_tei.title.endswith("another run")
    lines = write_table([ours, beside_tei]).partition("\n\n")[0].splitlines()
    assert len(lines) == 2 + 2 + len(ours.rows) + len(beside_tei.rows)
    assert len({line.count("|") for line in lines}) == 1
    assert all(None not in (row.memory_mb, row.ready_s, row.cosine) for row in ours.rows)


def test_every_peer_that_was_measured_has_a_row() -> None:
    measured = [peer.name for peer in Comparison.read(RESULTS).peers if peer.is_measured]
    left_out = [name for name in measured if name not in SHOWN]
    assert all(name.startswith("vecmill") for name in left_out), left_out
    assert len(read_runs()[0].rows) == len(measured) - len(left_out)


def test_the_page_says_when_where_and_how_the_figures_were_measured() -> None:
    found = Comparison.read(RESULTS)
    page = PAGE.read_text("utf-8")
    rounds = found.settings["rounds"]
    for part in (
        found.settings["command"],
        found.finished_at[:10],
        f"{rounds} round",
        f"load average {found.machine['load_average']:.2f}",
        found.machine["processor"],
    ):
        assert part in page, part


@pytest.mark.parametrize(
    ("ours", "other", "is_inverse"),
    [
        ("vecmill, fp32", "Infinity 0.0.78, ONNX", False),
        ("vecmill, fp32", "FastAPI + ONNX Runtime", False),
        ("vecmill, fp32", "llama-cpp-python, f32", False),
        ("vecmill, fp32", "fastembed (in process)", True),
    ],
)
def test_the_claims_of_the_comparison_are_those_of_the_figures(
    ours: str, other: str, is_inverse: bool
) -> None:
    rows = {row.name: row for row in read_runs()[0].rows}
    assert_claimed(rows[other] if is_inverse else rows[ours], rows[ours] if is_inverse else rows[other])


def test_the_claim_about_tei_is_that_of_its_run() -> None:
    rows = {row.name: row for row in read_runs()[1].rows}
    assert_claimed(rows["vecmill, fp32"], rows["TEI 1.9.3"])
    assert f"{rows['TEI 1.9.3'].memory_mb:.0f} MB" in COMPARED_TEXT


def test_the_claims_of_the_first_sentences_are_those_of_the_comparison() -> None:
    first = README_TEXT.partition("## Run it")[0]
    claims = re.findall(r"[\d.]+ to [\d.]+ times", first)
    assert len(claims) == 2
    assert all(claim in COMPARED_TEXT for claim in claims)


def test_the_memory_beside_infinity_is_that_of_the_table() -> None:
    rows = {row.name: row for row in read_runs()[0].rows}
    ours, infinity = rows["vecmill, fp32"].memory_mb, rows["Infinity 0.0.78, ONNX"].memory_mb
    assert f"in {ours:.0f} MB instead of {infinity:,.0f} MB" in COMPARED_TEXT


def assert_claimed(faster: Row, slower: Row) -> None:
    """The page of comparisons says how many times as many texts a second one answers."""
    ratios = [faster.texts_per_s[name] / slower.texts_per_s[name] for name in COLUMNS]
    # At most the precision that the page has: two digits.
    digits = 2 if max(ratios) < 1 else 1
    claim = f"{min(ratios):.{digits}f} to {max(ratios):.{digits}f}"
    assert claim in COMPARED_TEXT, f"{faster.name}, {slower.name}: {claim}"


def test_the_bars_are_as_long_as_the_figures_and_inside_the_chart() -> None:
    runs = read_runs()
    tree = ElementTree.fromstring(draw_chart(runs))
    _, *bars = [element.attrib for element in tree if element.tag.endswith("rect")]
    values = [row.texts_per_s[CHARTED] for run in runs for row in run.rows]
    assert len(bars) == len(values)
    scales = [float(bar["width"]) / value for bar, value in zip(bars, values, strict=True)]
    assert max(scales) - min(scales) < 0.01 * max(scales)
    for bar in bars:
        assert float(bar["x"]) + float(bar["width"]) < float(tree.attrib["width"])
        assert float(bar["y"]) + float(bar["height"]) < float(tree.attrib["height"])


def test_a_table_is_replaced_as_a_whole() -> None:
    begin, end = re.findall(r"<!-- overview: .*? -->", PAGE.read_text("utf-8"))
    assert replace_table(f"a\n{begin}\nold\n{end}\nb", "new") == f"a\n{begin}\n\nnew\n\n{end}\nb"
