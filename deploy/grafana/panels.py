"""What the dashboards are made of: panels of a few kinds, the variables at the top, and how they are laid out."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG = "queuecast"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
COLUMNS = 24
"""Grafana's own grid."""

Panel = timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel
P = TypeVar("P", timeseries.Panel, stat.Panel, bargauge.Panel, table.Panel)
Variable = Builder[VariableModel]


class Query(NamedTuple):
    """What is asked of Prometheus, and how its answer is called; labels in double braces."""

    expr: str
    legend: str


class Column(NamedTuple):
    """A column of a table: its name, its query, and Grafana's name of its unit."""

    name: str
    expr: str
    unit: str


def lines(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Values over time. Those whose legend begins with "nominal" are dashed."""
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.BOTTOM)
    panel = _described(timeseries.Panel(), title, description, unit)
    panel = panel.legend(legend.calcs(["lastNotNull", "max"]).show_legend(True)).fill_opacity(5)
    panel = panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    dashed = DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [6, 6]})
    return _asking(panel.override_by_regexp("/^nominal/", [dashed]), queries)


def stacked(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Parts of a whole over time, one upon the other."""
    panel = lines(title, description, unit, *queries).stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return panel.fill_opacity(30).min(0)


def counts(title: str, description: str, *queries: Query) -> timeseries.Panel:
    """How often something happened, as bars over time."""
    panel = stacked(title, description, "short", *queries).draw_style(GraphDrawStyle.BARS)
    return panel.fill_opacity(80).decimals(0)


def now(title: str, description: str, unit: str, query: Query) -> stat.Panel:
    """The latest values, large."""
    return _asking(_described(stat.Panel(), title, description, unit), [query], instant=True)


def whether(title: str, description: str, query: Query) -> stat.Panel:
    """Whether something is so (1) or not (0): green or red."""
    steps = [Threshold(color="red"), Threshold(value=1, color="green")]
    return now(title, description, "bool_on_off", query).thresholds(dashboard.ThresholdsConfig().steps(steps))


def bars(title: str, description: str, unit: str, query: Query) -> bargauge.Panel:
    """The latest values side by side."""
    panel = _described(bargauge.Panel(), title, description, unit).min(0)
    panel = panel.display_mode(BarGaugeDisplayMode.BASIC).orientation(VizOrientation.HORIZONTAL)
    return _asking(panel, [query], instant=True)


def columns(title: str, description: str, *found: Column) -> table.Panel:
    """A table of the latest values: a row for each set of labels, which all the columns' queries must share."""
    panel = _described(table.Panel(), title, description, "short")
    for place, column in enumerate(found):
        panel = panel.with_target(
            _query(Query(column.expr, column.name), place).instant().format(PromQueryFormat.TABLE)
        ).override_by_name(column.name, [DynamicConfigValue("unit", column.unit)])
    names = {f"Value #{_letter(place)}": column.name for place, column in enumerate(found)}
    tidy = {"excludeByName": {"Time": True}, "renameByName": names}
    panel = panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(DataTransformerConfig(id_val="organize", options=tidy))


def listed(title: str, description: str, expr: str, *labels: str) -> table.Panel:
    """A table of the labels that there are now: a row for each set of them, in these columns."""
    panel = _described(table.Panel(), title, description, "short")
    panel = panel.with_target(_query(Query(expr, title), 0).instant().format(PromQueryFormat.TABLE))
    places = {label: place for place, label in enumerate(labels)}
    tidy = {"excludeByName": {"Time": True, "Value": True}, "indexByName": places}
    return panel.with_transformation(DataTransformerConfig(id_val="organize", options=tidy))


def _described(panel: P, title: str, description: str, unit: str) -> P:
    return panel.title(title).description(description).unit(unit).datasource(SOURCE)


def _asking(panel: P, queries: Sequence[Query], instant: bool = False) -> P:
    for place, query in enumerate(queries):
        target = _query(query, place)
        panel = panel.with_target(target.instant() if instant else target.range())
    return panel


def _query(query: Query, place: int) -> prometheus.Dataquery:
    target = prometheus.Dataquery().datasource(SOURCE).ref_id(_letter(place))
    return target.expr(query.expr).legend_format(query.legend)


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def values_of(name: str, label: str, metric: str, of: str) -> Variable:
    """A variable with the values of a metric's label to choose from: any number of them, at first all."""
    variable = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(f"label_values({metric}, {of})")
    variable = variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    every = VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).current(every)


def window(*choices: str) -> Variable:
    """The variable `window`, with lengths of time to choose from; the first is taken where none is chosen."""
    options = [VariableOption(selected=choice == choices[0], text=choice, value=choice) for choice in choices]
    variable = dashboard.IntervalVariable("window").label("over the last").values(",".join(choices))
    return variable.options(options).current(options[0])


def laid_out(
    name: str, description: str, variables: Sequence[Variable], sections: Mapping[str, Sequence[Sequence[Panel]]]
) -> Dashboard:
    """A dashboard of sections, each a title and lines of panels that share the width evenly."""
    made = dashboard.Dashboard(f"queuecast: {name}").uid(f"queuecast-{name}").description(description).tags([TAG])
    made = made.time("now-24h", "now").refresh("1m").tooltip(DashboardCursorSync.CROSSHAIR).readonly()
    others = dashboard.DashboardLink("queuecast").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    made = made.link(others.as_dropdown(True).include_vars(True).keep_time(True))
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for variable in variables:
        made = made.with_variable(variable)
    identity = 0
    for title, rows in sections.items():
        identity += 1
        made = made.with_row(dashboard.Row(title).id(identity))
        for row in rows:
            for panel in row:
                identity += 1
                made = made.with_panel(panel.id(identity).span(COLUMNS // len(row)).height(8))
    return made.build()
