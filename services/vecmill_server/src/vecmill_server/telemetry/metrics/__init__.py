"""The Prometheus metrics of the server, in a registry of their own.

How it works. `definitions` declares every metric once: its name, help text and labels. Everything else uses
the declarations: `server_metrics` counts requests, batches and the events of models, and `state_collectors`
reads other values at each scrape. `metric_aliases` renames metrics for the dashboards of other servers. The
Grafana board, the alert rules and the tables of docs/metrics.md are written from the same declarations.

Every label has a fixed set of values (routes, statuses, reasons, models, lanes, owners of keys), so the
number of series does not depend on what clients send.
"""
