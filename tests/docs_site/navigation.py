"""The navigation of the site: by what a reader wants to do."""

from collections.abc import Mapping, Sequence

NAVIGATION: Mapping[str, Sequence[str]] = {
    "Learn": ("index.md", "quickstart.md", "rag.md", "library.md", "console.md", "cookbook.md"),
    "How to": (
        *("choosing.md", "evaluation.md", "compared.md", "compatibility.md", "moving-in.md"),
        *("embed.md", "stores.md", "batches.md", "long-texts.md", "pictures.md"),
        *("deployment.md", "operations.md", "kubernetes.md", "reverse-proxies.md", "ray.md"),
        *(
            "limits.md",
            "several-models.md",
            "security.md",
            "monitoring.md",
            "alerts.md",
            "troubleshooting.md",
        ),
    ),
    "Reference": (
        *("api.md", "client-routes.md", "configuration.md", "reference/options.md", "reference/library.md"),
        *("models.md", "published-models.md", "model-files.md", "engines.md", "spaces.md", "metrics.md"),
        *("benchmarks/quality.md", "stability.md", "changelog.md"),
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
