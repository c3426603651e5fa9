"""The navigation of the site: by what a reader wants to do."""

from collections.abc import Mapping, Sequence

NAVIGATION: Mapping[str, Sequence[str]] = {
    "Learn": ("index.md", "quickstart.md", "library.md", "console.md", "cookbook.md"),
    "How to": (
        *("choosing.md", "evaluation.md", "compared.md", "compatibility.md"),
        *("embed.md", "stores.md", "pictures.md"),
        *("operations.md", "deployment.md", "kubernetes.md", "reverse-proxies.md", "ray.md"),
        *("limits.md", "several-models.md", "security.md", "monitoring.md", "troubleshooting.md"),
    ),
    "Reference": (
        *("api.md", "client-routes.md", "reference/options.md", "reference/library.md"),
        *("models.md", "engines.md", "spaces.md", "metrics.md"),
        *("benchmarks/published-models.md", "benchmarks/quality.md", "stability.md", "changelog.md"),
    ),
    "Develop": (
        *("contributing.md", "contributing/architecture.md", "contributing/where-to-change.md"),
        *("contributing/modules.md", "contributing/promises.md"),
        *("contributing/measurements.md", "contributing/peers.md", "contributing/many-cores.md"),
        *("contributing/client-tests.md", "contributing/published-tables.md"),
    ),
}
# Whose pages are listed by their names.
DECISIONS = "Decisions"
