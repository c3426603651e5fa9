"""Labels and their scores in responses, in the format of Infinity and TEI."""

from typing import Any

from vecmill.results import ClassifyResult
from vecmill_server.base.json_schema import Component

LABEL = Component("Label", {"label": str, "score": float})


def write_labels(result: ClassifyResult, *, last_first: bool = False) -> list[list[dict[str, Any]]]:
    """Write all labels of each input, the best first; of equal scores the first label, or the last."""
    step = -1 if last_first else 1
    labels = result.labels[::step]
    return [
        [
            {"score": float(scores[place]), "label": labels[place]}
            for place in (-scores).argsort(kind="stable").tolist()
        ]
        for scores in result.scores[:, ::step]
    ]
