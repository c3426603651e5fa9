"""The beginning of README.md has the published results, as a table and as a chart."""

import re
from xml.etree import ElementTree

from bench.peers.overview import (
    CHART,
    CHARTED,
    COLUMNS,
    PAGE,
    draw_chart,
    read_runs,
    replace_table,
    write_table,
    written_files,
)


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
    lines = write_table([ours, beside_tei]).splitlines()
    assert len(lines) == 2 + 2 + len(ours.rows) + len(beside_tei.rows)
    assert len({line.count("|") for line in lines}) == 1
    assert all(None not in (row.memory_mb, row.ready_s, row.cosine) for row in ours.rows)


def test_the_claim_of_the_page_is_that_of_the_figures() -> None:
    rows = {row.name: row for row in read_runs()[0].rows}
    ours, infinity = rows["vecmill, fp32"], rows["Infinity 0.0.78"]
    ratios = [ours.texts_per_s[name] / infinity.texts_per_s[name] for name in COLUMNS]
    assert ours.memory_mb is not None
    assert infinity.memory_mb is not None
    page = " ".join(PAGE.read_text("utf-8").split())
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times as many texts a second as Infinity" in page
    assert f"in {ours.memory_mb:.0f} MB of memory instead of {infinity.memory_mb:,.0f} MB" in page


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
