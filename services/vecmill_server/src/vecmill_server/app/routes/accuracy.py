"""What is known of the accuracy and the identity of a served model: `/v1/accuracy/{id}`, also in `/info`.

Three measurements are known: that of `vecmill optimize` for the served plan, that of the first start in a
reduced precision, and that of `vecmill check` for the same weights, engine and machine. The findings of a
check are read when they are asked for, so a check beside a running server is shown without a restart.
"""

import weakref
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from vecmill.config import default_cache_dir
from vecmill.errors import VecmillError
from vecmill.mill import Mill
from vecmill.models import fingerprint_model
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.values.own_thread import call_in_thread
from vecmill.verification.check_records import CheckRecord, Finding, find_record
from vecmill.verification.precision_gate import MIN_COSINES, read_precision_result
from vecmill_server.app.openapi.operations import Paths, as_json, get, path_parameter
from vecmill_server.app.routes.model_entries import PICTURES, describe_pictures
from vecmill_server.app.shared_page import SharedPage
from vecmill_server.base import json_schema
from vecmill_server.base.json_io import decode_object, encode_json
from vecmill_server.base.json_schema import Component
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.service.service import Service

# Reports are made at most this long before they are asked for.
REPORT_AGE_S = 1.0


class AccuracyReports:
    """The reports on the served models. One report is made for all who ask at about the same time."""

    def __init__(self, service: Service) -> None:
        self._clock = service.page_clock
        # A model loaded on demand gets a new mill at each load, and the old one must leave the memory.
        self._pages: dict[str, tuple[weakref.ref[Mill], SharedPage]] = {}

    async def read(self, model: ServedModel) -> Mapping[str, Any]:
        """Return the report on a model. Raises `NotReady` while it loads."""
        info, identity = model.mill.info, model.mill.identity  # raise before a page is made
        mill, page = self._pages.get(model.name, (None, None))
        if page is None or mill is None or mill() is not model.mill:
            # In a thread, because the fingerprint of a model may have to be read again.
            render = partial(
                call_in_thread, "vecmill-accuracy", lambda: encode_json(report_accuracy(model.mill))
            )
            page = SharedPage(render, REPORT_AGE_S, self._clock)
            self._pages[model.name] = weakref.ref(model.mill), page
        served = {
            "space": identity.space,
            "exact": identity.exact,
            "engine": info.name,
            "precision": info.precision,
            "device": info.device,
        }
        report = decode_object(await page.read())
        return {"id": model.name, "object": "model.accuracy", **served, **describe_pictures(model), **report}


def read_precision_check(mill: Mill) -> dict[str, Any] | None:
    """Return what the first start in a reduced precision has measured; `None` in any other precision."""
    if mill.info.precision not in MIN_COSINES:
        return None
    plan = EnginePlan(mill.info.name, Precision(mill.info.precision), mill.config.device)
    cache_dir = mill.config.cache_dir or default_cache_dir()
    found = read_precision_result(mill.description, plan, cache_dir=cache_dir)
    return None if found is None else asdict(found)


def report_accuracy(mill: Mill) -> dict[str, Any]:
    """Return the fingerprint of a loaded model, and what has been measured of its accuracy."""
    description, cache_dir = mill.description, mill.config.cache_dir or default_cache_dir()
    accuracy = mill.accuracy
    report: dict[str, Any] = {
        "fingerprint": None,
        "optimized": None if accuracy is None else asdict(accuracy),
        "precision_check": None,
        "check": None,
    }
    try:
        report["fingerprint"] = fingerprint_model(description, cache_dir)
        report["precision_check"] = read_precision_check(mill)
        record = find_record(description, mill.info, cache_dir)
    except VecmillError:  # its files were removed since
        return report
    return report | {"check": None if record is None else _describe_record(record)}


def _describe_record(record: CheckRecord) -> dict[str, Any]:
    return {
        "checked_at": record.checked_on,
        "own_texts": record.has_own_texts,
        "findings": [_describe_finding(finding) for finding in record.findings],
    }


def _describe_finding(finding: Finding) -> dict[str, Any]:
    return {"side": finding.side, "is_within": finding.is_within, **asdict(finding.accuracy)}


_COSINE = json_schema.nullable(float)
_FIGURES = {
    "reference": json_schema.described(str, "The reference implementation."),
    "texts": json_schema.described(int, "The number of texts or pairs."),
    "largest_difference": float,
    "scale": json_schema.described(float, "The largest absolute value of the reference output."),
    "cosine_min": json_schema.described(_COSINE, "The cosine similarity of the worst text, null for scores."),
    "cosine_mean": _COSINE,
    "kept": json_schema.described(
        _COSINE, "Recall@10: the fraction of nearest neighbours, best documents or labels that are unchanged."
    ),
}
ACCURACY = Component("Accuracy", _FIGURES)
_FINDING = Component(
    "CheckFinding",
    {
        "side": json_schema.described(
            json_schema.OPTIONAL_STRING, "`documents` or `queries` of an asymmetric model, otherwise null."
        ),
        "is_within": json_schema.described(
            bool, "Whether the outputs are within the limit of their precision, in fp32 that of rounding."
        ),
        **_FIGURES,
    },
)
_CHECK = Component(
    "Check",
    {
        "checked_at": json_schema.described(str, "The time in UTC, as in RFC 3339."),
        "own_texts": json_schema.described(bool, "Whether the operator's own texts were compared."),
        "findings": [_FINDING],
    },
)
_PRECISION_CHECK = Component(
    "PrecisionCheck",
    {
        "worst_cosine": json_schema.described(float, "The lowest cosine similarity with the fp32 outputs."),
        "texts": json_schema.described(int, "The number of texts or pairs."),
    },
)


def nullable_part(component: Component, note: str) -> dict[str, Any]:
    """Return the schema of a component that may be null."""
    return {"allOf": [component], "nullable": True, "description": note}


_ALWAYS = {
    "id": str,
    "object": "model.accuracy",
    "space": json_schema.described(str, "Vectors of equal spaces are comparable."),
    "exact": json_schema.described(str, "The space and the way in which its vectors are computed."),
    **dict.fromkeys(("engine", "precision", "device"), str),
    "fingerprint": json_schema.described(
        json_schema.OPTIONAL_STRING,
        "Changes with the files of the weights and the tokenizer, and the settings.",
    ),
    "optimized": nullable_part(
        ACCURACY, "Null if `vecmill optimize` has not measured this engine and precision."
    ),
    "precision_check": nullable_part(
        _PRECISION_CHECK,
        "What the first start in a reduced precision measured; null in fp32, and for a plan of `vecmill "
        "optimize`.",
    ),
    "check": nullable_part(
        _CHECK, "The last `vecmill check` of this model, engine and machine; null without one."
    ),
}
REPORT = Component("AccuracyReport", json_schema.an_object(tuple(_ALWAYS), {**_ALWAYS, "pictures": PICTURES}))

PATHS: Paths = {
    "/v1/accuracy/{id}": {
        "get": get(
            "The measured accuracy of a model",
            as_json(REPORT),
            errors={"404": "No model has that name", "503": "The model is loading, or could not be loaded"},
            parameters=[path_parameter("id")],
        )
    }
}
