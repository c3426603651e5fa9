"""A panel of the Grafana board, and its queries. `$job`, `$instance` and `$model` are its variables."""

from dataclasses import dataclass
from enum import StrEnum

from pages.alert_rules import COMPUTING

# The labels that every query selects.
ON = 'job=~"$job", instance=~"$instance"'
OF_MODEL = f'{ON}, model=~"$model"'
ASKED = f'{ON}, route=~"{COMPUTING}"'
# The routes of probes, of scrapers and of the server's own pages, which nobody asks for work.
OWN_ROUTES = (
    *("alert", "alerts", "console_asset", "console_history", "console_models", "console_page"),
    *("console_state", "docs", "docs_asset", "health", "livez", "metrics", "openapi", "readyz"),
)
OF_CLIENTS = f'{ON}, route!~"{"|".join(OWN_ROUTES)}"'


class Unit(StrEnum):
    """Units, by Grafana's names for them."""

    SECONDS = "s"
    BYTES = "bytes"
    SHARE = "percentunit"
    COUNT = "short"
    EACH_SECOND = "cps"
    REQUESTS_EACH_SECOND = "reqps"


class Look(StrEnum):
    """How a panel shows its series, by Grafana's names."""

    LINES = "timeseries"
    STACK = "stack"
    STATES = "state-timeline"
    TABLE = "table"


@dataclass(frozen=True)
class Query:
    """An expression of PromQL, and the text for each of its series."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel. `description` tells a reader who does not know the server what the figures mean."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    look: Look = Look.LINES


def rate(name: str, labels: str = OF_MODEL) -> str:
    """The increase of a counter in a second."""
    return f"rate({name}{{{labels}}}[$__rate_interval])"


def mean(name: str) -> Query:
    """The mean of a histogram, for each model."""
    sums, counts = rate(f"{name}_sum"), rate(f"{name}_count")
    return Query(f"sum by (model) ({sums}) / sum by (model) ({counts})", "{{model}}")


def quantile(share: float, name: str, labels: str, by: str = "") -> str:
    """A quantile of a histogram, for each value of the label `by`."""
    grouping = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({grouping}) ({rate(f'{name}_bucket', labels)}))"


DURATIONS = "vecmill_http_request_duration_seconds"
