"""The navigation of the site: by what a reader wants to do."""

from collections.abc import Mapping, Sequence

NAVIGATION: Mapping[str, Sequence[str]] = {
    "Try": (
        "index.md",
        "quickstart.md",
        "choosing.md",
        "compared.md",
        "library.md",
        "rag.md",
        "cookbook.md",
        "console.md",
        "troubleshooting.md",
    ),
    "Call": (
        *("api.md", "client-routes.md"),
        *("compatibility.md", "batches.md", "long-texts.md", "spaces.md", "moving-in.md"),
    ),
    "Models": (
        *(
            "models.md",
            "published-models.md",
            "pictures.md",
            "model-files.md",
            "engines.md",
        ),
        *("evaluation.md", "benchmarks/quality.md"),
    ),
    "Run": (
        *(
            "configuration.md",
            "limits.md",
            "several-models.md",
        ),
        *("operations.md", "security.md"),
    ),
    "Deploy": (
        *("deployment.md", "kubernetes.md", "reverse-proxies.md"),
        *("ray.md",),
    ),
    "Watch": ("monitoring.md", "alerts.md", "metrics.md"),
    "Embed files": ("embed.md", "stores.md"),
    "Reference": ("reference/library.md", "reference/options.md", "stability.md", "changelog.md"),
    "Change vecmill": (
        *("contributing.md", "contributing/architecture.md", "contributing/where-to-change.md"),
        *("contributing/modules.md", "contributing/promises.md"),
        *("contributing/measurements.md", "contributing/peers.md", "contributing/many-cores.md"),
        *("contributing/client-tests.md", "contributing/published-tables.md"),
    ),
}
# Whose pages are listed by their names.
DECISIONS = "Decisions"
