"""README.md and docs/compared.md have the published results, as a table and as a chart."""

import json
import re
from statistics import median
from xml.etree import ElementTree

import pytest

from bench.peers.loads import list_loads
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
    ("one", "other"),
    [
        ("vecmill, fp32", "Infinity 0.0.78, ONNX"),
        ("vecmill, fp32", "FastAPI + ONNX Runtime"),
        ("vecmill, fp32", "llama-cpp-python, f32"),
        ("fastembed (in process)", "vecmill, fp32"),
    ],
)
def test_the_claims_of_the_comparison_are_those_of_the_figures(one: str, other: str) -> None:
    rows = rows_of(0)
    claim = claim_of(rows[one], rows[other])
    assert claim in COMPARED_TEXT, f"{one}, {other}: {claim}"


def test_the_claim_about_tei_is_that_of_its_run() -> None:
    rows = rows_of(1)
    assert claim_of(rows["vecmill, fp32"], rows["TEI 1.9.3"]) in COMPARED_TEXT
    assert f"{rows['TEI 1.9.3'].memory_mb:.0f} MB" in COMPARED_TEXT


def test_the_claims_of_the_first_sentences_are_those_of_the_figures() -> None:
    ours, beside_tei = rows_of(0), rows_of(1)
    infinity = claim_of(ours["vecmill, fp32"], ours["Infinity 0.0.78, ONNX"])
    tei = claim_of(beside_tei["vecmill, fp32"], beside_tei["TEI 1.9.3"])
    first = README_TEXT.partition("## Run it")[0]
    assert f"[{infinity} times as many texts a second](#speed) as Infinity" in first
    assert f"{tei} times as many as TEI" in first


def test_what_is_said_of_one_client_and_of_equal_precisions_is_that_of_the_figures() -> None:
    rows = rows_of(0)
    ours, fastembed = rows["vecmill, fp32"], rows["fastembed (in process)"]
    times = f"takes {fastembed.one_client_ms[0]:.1f} ms, in vecmill over HTTP {ours.one_client_ms[0]:.1f} ms"
    assert times in COMPARED_TEXT
    assert ours.memory_mb is not None
    assert fastembed.memory_mb is not None
    assert round(fastembed.memory_mb / ours.memory_mb) == 2
    peers = {peer.name: peer for peer in Comparison.read(RESULTS).peers}
    bf16, theirs = peers["vecmill, openvino bf16"], peers["sentence-transformers, openvino"]
    fp32 = peers["vecmill, onnx fp32"]
    *shorter, exact = list_loads()[:4]
    ratios = [median(bf16.values(load)) / median(theirs.values(load)) for load in shorter]
    assert (
        f"{min(ratios):.1f} to {max(ratios):.1f} times as fast with the three shorter texts" in COMPARED_TEXT
    )
    assert min(bf16.values(exact)) < max(theirs.values(exact))  # "as fast"
    assert min(theirs.values(exact)) < max(bf16.values(exact))
    assert max(fp32.values(exact)) < min(theirs.values(exact))


def test_the_claim_about_reranking_is_that_of_its_run() -> None:
    report = json.loads((RESULTS.parent / "rerankers" / RESULTS.name).read_text("utf-8"))
    medians = {figure["name"]: figure["median"] for figure in report["figures"]}
    ratio = medians["vecmill, onnx fp32"] / medians["infinity, torch"]
    assert f"ranks {ratio:.1f} times as many documents a second as Infinity with torch" in COMPARED_TEXT


def test_the_memory_beside_infinity_is_that_of_the_table() -> None:
    rows = rows_of(0)
    ours, infinity = rows["vecmill, fp32"].memory_mb, rows["Infinity 0.0.78, ONNX"].memory_mb
    assert f"in {ours:.0f} MB instead of {infinity:,.0f} MB" in COMPARED_TEXT


def rows_of(run: int) -> dict[str, Row]:
    return {row.name: row for row in read_runs()[run].rows}


def claim_of(one: Row, other: Row) -> str:
    """How many times as many texts a second as another it gives, as the pages write it."""
    ratios = [one.texts_per_s[name] / other.texts_per_s[name] for name in COLUMNS]
    digits = 2 if max(ratios) < 1 else 1
    return f"{min(ratios):.{digits}f} to {max(ratios):.{digits}f}"


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
