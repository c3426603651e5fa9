"""Labels and their scores in responses, in the format of Infinity and TEI."""

from typing import Any

from vecmill.results import ClassifyResult
from vecmill_server.json_schema import Component

LABEL = Component("Label", {"label": str, "score": float})


def write_labels(result: ClassifyResult) -> list[list[dict[str, Any]]]:
    """Write all labels of each input, the best first."""
    return [
        [{"score": score, "label": label} for label, score in result.ranked(index)]
        for index in range(len(result.scores))
    ]
