"""The JSON of the Grafana board, built with Grafana's own builders from the declarations of its panels."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard, prometheus, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.common import StackingConfig, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from pages.board_panels import COLLAPSED, ROWS
from pages.board_queries import Look, Panel, Query, Unit

COLUMNS = 24
HEIGHT = 8
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_REF_IDS = "ABCDEFGH"
# The variables, by name: their label, and the query for their values.
VARIABLES = {
    "job": ("Job", "label_values(vecmill_build_info, job)"),
    "instance": ("Instance", 'label_values(vecmill_build_info{job=~"$job"}, instance)'),
    "model": ("Model", 'label_values(vecmill_model_ready{job=~"$job", instance=~"$instance"}, model)'),
}


def write_board() -> str:
    """The JSON of the board."""
    board = (
        dashboard.Dashboard("vecmill")
        .uid("vecmill")
        .description("The embedding and reranking server vecmill: load, latency, errors and resources.")
        .tags(["vecmill"])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name, (label, query) in VARIABLES.items():
        board = board.with_variable(_variable(name, label, query))
    for title, panels in ROWS.items():
        width = COLUMNS // 3 if len(panels) % 3 == 0 or len(panels) > 4 else COLUMNS // 2
        made = [_panel(panel).span(width).height(HEIGHT) for panel in panels]
        row = dashboard.Row(title).collapsed(False)
        if title in COLLAPSED:  # its panels are in the row
            for panel in made:
                row = row.with_panel(panel)
            board = board.with_row(row)
            continue
        board = board.with_row(row)
        for panel in made:
            board = board.with_panel(panel)
    document = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    for row in document["panels"]:
        _place(row, row.get("panels") or ())
    for number, panel in enumerate(list_panels(document), 1):
        panel["id"] = number
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def list_panels(document: Any) -> Iterator[Any]:
    """Yield the panels and rows of a board, those in collapsed rows too."""
    for panel in document["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def _place(row: Any, panels: Sequence[Any]) -> None:
    """Place the panels of a collapsed row below it, from the left, as they appear when it is opened."""
    x, y = 0, row["gridPos"]["y"] + 1
    for panel in panels:
        place = panel["gridPos"]
        if x + place["w"] > COLUMNS:
            x, y = 0, y + place["h"]
        place["x"], place["y"] = x, y
        x += place["w"]


def _variable(name: str, label: str, query: str) -> Any:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(text="All", value="$__all", selected=True))
    )


def _panel(panel: Panel) -> Any:
    match panel.look:
        case Look.STATES:
            made = statetimeline.Panel().merge_values(True)
        case Look.TABLE:
            # The columns of the scrape and of the time tell a reader nothing.
            hidden = {"excludeByName": {"Time": True}}
            made = table.Panel().with_transformation(DataTransformerConfig(id_val="organize", options=hidden))
        case _:
            made = _lines(panel)
    made = made.title(panel.title).description(panel.description).datasource(SOURCE).unit(panel.unit)
    for ref_id, query in zip(_REF_IDS, panel.queries, strict=False):
        made = made.with_target(_target(query, ref_id, is_table=panel.look is Look.TABLE))
    return made


def _lines(panel: Panel) -> Any:
    made = (
        timeseries.Panel()
        .min(0)
        .fill_opacity(10)
        .show_points(common.VisibilityMode.NEVER)
        .legend(
            VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
        )
        .tooltip(VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    if panel.unit is Unit.SHARE:
        made = made.max(1)
    if panel.look is Look.STACK:
        made = made.stacking(StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    return made


def _target(query: Query, ref_id: str, *, is_table: bool) -> Any:
    made = prometheus.Dataquery().expr(query.expression).ref_id(ref_id).datasource(SOURCE)
    if is_table:
        return made.instant().format(PromQueryFormat.TABLE)
    return made.range().legend_format(query.legend)
