"""What `routes.models` tells of the models that are served; Ollama's part is described with Ollama."""

from vecmill_server.openapi.operations import TEI_PROBLEM, as_json, at, get, path_parameter, problem_response
from vecmill_server.openapi.vocabulary import (
    COUNT,
    NUMBER,
    OPTIONAL_STRING,
    STRING,
    Family,
    Schema,
    an_object,
    described,
    list_of,
    reference,
)
from vecmill_server.settings import ServerSettings


def describe_models(settings: ServerSettings) -> Family:
    """`/models` and `/info`."""
    listing = get("The models that are served", as_json(reference("ModelList")))
    one = get(
        "One model",
        as_json(reference("Model")),
        errors={"404": "No model of that name"},
        parameters=[path_parameter("id")],
    )
    info = get("The first model, as TEI", as_json(reference("Info")))
    info["responses"]["503"] = problem_response("It is loading", (TEI_PROBLEM,))
    return Family(
        {
            **at("/v1/models", "/models", get=listing),
            **at("/v1/models/{id}", "/models/{id}", get=one),
            "/info": {"get": info},
        },
        {
            "Model": _model(),
            "Accuracy": _accuracy(),
            "ModelList": an_object(
                ("object", "data"),
                {"object": {"type": "string", "enum": ["list"]}, "data": list_of(reference("Model"))},
            ),
            "Info": _info(),
        },
    )


def _model() -> Schema:
    stats = {"queue_fraction": NUMBER, "queue_absolute": COUNT, "results_pending": COUNT, "batch_size": COUNT}
    accuracy = {
        "allOf": [reference("Accuracy")],
        "nullable": True,
        "description": "Null where `vecmill optimize` has not measured what is served.",
    }
    while_loaded = {
        "task": described(STRING, "What it is for; this and all below are absent while it loads."),
        "capabilities": list_of(STRING),
        "max_model_len": described(COUNT, "The longest input, in tokens."),
        "dim": described(COUNT, "Numbers in a row, or labels."),
        "backend": described(STRING, "The engine."),
        "engine": described(STRING, "The same."),
        "precision": STRING,
        "accuracy": accuracy,
    }
    always = {
        "id": STRING,
        "object": {"type": "string", "enum": ["model"]},
        "created": COUNT,
        "owned_by": STRING,
        "root": STRING,
        "parent": OPTIONAL_STRING,
        "stats": an_object(tuple(stats), stats),
    }
    return an_object(tuple(always), {**always, **while_loaded})


def _accuracy() -> Schema:
    cosine = {**NUMBER, "nullable": True}
    properties = {
        "reference": described(STRING, "What was compared with."),
        "texts": described(COUNT, "Over how many texts or pairs."),
        "largest_difference": NUMBER,
        "scale": described(NUMBER, "The largest number of the reference."),
        "cosine_min": described(cosine, "Of the worst text; null for scores."),
        "cosine_mean": cosine,
        "kept": described(
            cosine, "The share of nearest neighbours, best documents or labels that are the same."
        ),
    }
    return an_object(tuple(properties), properties)


def _model_type() -> Schema:
    by_id = {"type": "object", "additionalProperties": STRING}
    by_label = {"type": "object", "additionalProperties": COUNT}
    labels = an_object(("id2label", "label2id"), {"id2label": by_id, "label2id": by_label})
    pooling = an_object(("pooling",), {"pooling": STRING})
    return an_object(
        (), {"embedding": pooling, "reranker": labels, "classifier": labels}, minProperties=1, maxProperties=1
    )


def _info() -> Schema:
    counts = (
        "max_concurrent_requests",
        "max_input_length",
        "max_batch_tokens",
        "max_client_batch_size",
        "tokenization_workers",
    )
    properties = {
        **dict.fromkeys(("model_id", "model_dtype", "served_model_name", "version"), STRING),
        **dict.fromkeys(("model_sha", "sha", "docker_label"), OPTIONAL_STRING),
        **dict.fromkeys(counts, COUNT),
        "max_batch_requests": {**COUNT, "nullable": True},
        "model_type": described(_model_type(), "It has one of these keys."),
        "auto_truncate": {"type": "boolean"},
    }
    return an_object(tuple(properties), properties)
