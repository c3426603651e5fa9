"""The description of the API that `/openapi.json` gives: what `wire` reads and writes, in OpenAPI 3.0."""

from collections.abc import Mapping
from typing import Any

from vecmill_server import __version__
from vecmill_server.batches.openapi import batches_paths, batches_schemas
from vecmill_server.middleware.keys import PUBLIC_PATHS
from vecmill_server.problems import PROBLEMS
from vecmill_server.settings import ServerSettings, TokenIds

Schema = Mapping[str, Any]

_STRING: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number", "format": "float"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_IDS: Schema = {"type": "array", "items": _COUNT, "minItems": 1}
_MODEL: Schema = {
    "type": "string",
    "nullable": True,
    "description": "The model's name, an alias of it, or nothing for the model that the server has.",
}
_USAGE: Schema = {
    "type": "object",
    "required": ["prompt_tokens", "total_tokens"],
    "properties": {"prompt_tokens": _COUNT, "total_tokens": _COUNT},
}

_RAW_SCORES: Schema = {"type": "boolean", "nullable": True, "default": False}

# What any route that computes may answer, besides 200; 408 and 431 may come before there is a route.
_WORK_STATUSES = tuple(sorted({problem.status for problem in PROBLEMS.values()} - {405, 409, 431}))


def describe_api(settings: ServerSettings) -> dict[str, Any]:
    """The OpenAPI document for a server with these settings."""
    document: dict[str, Any] = {
        "openapi": "3.0.3",
        "info": {
            "title": "vecmill",
            "version": __version__,
            "description": "Embeddings, reranking and classification. Unknown fields are ignored; "
            "null means absent.",
        },
        "servers": [{"url": settings.url_prefix or "/"}],
        "paths": _paths(),
        "components": {"schemas": _schemas(settings.token_ids)},
    }
    if settings.api_key:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "api-key"},
        }
        _ask_for_keys(document["paths"])
    return document


def _paths() -> dict[str, Any]:
    embeddings = _work("Embed texts", "EmbeddingsRequest", "EmbeddingsResponse")
    rerank = _work("Score documents against a query, best first", "RerankRequest", "RerankResponse")
    classify = _work("Classify texts", "ClassifyRequest", "ClassifyResponse")
    models = {"get": _read("The models that are served", _json(_reference("ModelList")))}
    model = {
        "get": _read("One model", _json(_reference("Model"))) | {"parameters": [_path_parameter("id")]},
    }
    model["get"]["responses"]["404"] = _problem("No model of that name")
    return {
        **{path: {"post": embeddings} for path in ("/v1/embeddings", "/embeddings")},
        **{path: {"post": rerank} for path in ("/v1/rerank", "/rerank", "/v2/rerank")},
        **{path: {"post": classify} for path in ("/v1/classify", "/classify")},
        "/predict": {
            "post": _tei_work("Classify texts, pairs or tokens", "PredictRequest", "PredictResponse")
        },
        "/embed_sparse": {
            "post": _tei_work("Embed texts as weights of columns", "TextsRequest", "SparseResponse")
        },
        "/embed_all": {"post": _tei_work("Embed each token of texts", "TextsRequest", "MultiVectorResponse")},
        **dict.fromkeys(("/v1/models", "/models"), models),
        **dict.fromkeys(("/v1/models/{id}", "/models/{id}"), model),
        **batches_paths(),
        "/livez": {"get": _read("Whether the process runs", _json(_reference("Status")))},
        "/readyz": {"get": _probe("Whether requests should be sent here")},
        "/health": {"get": _probe("The same as /readyz")},
        "/metrics": {"get": _read("For Prometheus", {"text/plain": {"schema": _STRING}})},
        "/openapi.json": {"get": _read("This document", _json({"type": "object"}))},
        "/docs": {"get": _read("A page that renders this document", {"text/html": {"schema": _STRING}})},
    }


def _work(summary: str, request: str, response: str) -> dict[str, Any]:
    reasons: dict[int, list[str]] = {}
    for problem in PROBLEMS.values():
        if problem.status in _WORK_STATUSES:
            reasons.setdefault(problem.status, []).append(problem.reason)
    problems = {
        str(status): _problem(", ".join(sorted(set(names)))) for status, names in sorted(reasons.items())
    }
    return {
        "summary": summary,
        "parameters": [
            _header_parameter("x-request-timeout-ms", {"type": "integer", "minimum": 1}),
            _header_parameter("x-request-id", {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}),
        ],
        "requestBody": {"required": True, "content": _json(_reference(request))},
        "responses": {"200": {"description": "Done", "content": _json(_reference(response))}, **problems},
    }


def _tei_work(summary: str, request: str, response: str) -> dict[str, Any]:
    """As `_work`, with the errors of TEI's routes: a wrong field is a 422."""
    operation = _work(summary, request, response)
    content = _json(_reference("TeiProblem"))
    operation["responses"] |= {
        status: {"description": found["description"], "content": content}
        for status, found in operation["responses"].items()
        # These come before the body is read as JSON, or are about the bytes of it.
        if status not in ("200", "401", "408", "413", "415")
    }
    operation["responses"]["422"] = {"description": "a field is wrong", "content": content}
    return operation


def _read(summary: str, content: Schema) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "Done", "content": content}}}


def _probe(summary: str) -> dict[str, Any]:
    operation = _read(summary, _json(_reference("Status")))
    operation["responses"]["503"] = {
        "description": "Loading, stopping, or without one of its workers",
        "content": _json(_reference("Status")),
    }
    return operation


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": _json(_reference("Problem"))}


def _ask_for_keys(paths: dict[str, Any]) -> None:
    for path, operations in paths.items():
        if path in PUBLIC_PATHS:
            continue
        for operation in operations.values():
            operation["security"] = [{"bearer": []}, {"header": []}]
            operation["responses"].setdefault("401", _problem("invalid_key"))


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _header_parameter(name: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _STRING}


def _object(required: tuple[str, ...], **properties: Schema) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


def _list_of(item: Schema) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _flag(default: bool) -> dict[str, Any]:
    return {"type": "boolean", "nullable": True, "default": default}


def _schemas(token_ids: TokenIds) -> dict[str, Any]:
    return {
        **_embeddings_schemas(token_ids),
        **_rerank_schemas(),
        **_classify_schemas(),
        **_tei_schemas(),
        **_model_schemas(),
        **_status_schemas(),
        **batches_schemas(),
    }


def _embeddings_schemas(token_ids: TokenIds) -> dict[str, Any]:
    items = [_STRING, _IDS] if token_ids is TokenIds.NATIVE else [_STRING]
    inputs = {"oneOf": [*items, {"type": "array", "minItems": 1, "items": {"oneOf": items}}]}
    return {
        "EmbeddingsRequest": _object(
            ("input",),
            input=inputs,
            model=_MODEL,
            encoding_format={"type": "string", "enum": ["float", "base64", None], "nullable": True},
            dimensions={
                **_COUNT,
                "nullable": True,
                "description": "Cut each row to this many numbers and normalise it again; 0 does not.",
            },
            prompt_name={**_STRING, "nullable": True, "description": "One of the model's own prompts."},
            truncate={**_flag(True), "description": "Cut texts that are too long; false refuses them."},
        ),
        "EmbeddingsResponse": _object(
            ("id", "object", "created", "model", "data", "usage"),
            id=_STRING,
            object={"type": "string", "enum": ["list"]},
            created=_COUNT,
            model=_STRING,
            data=_list_of(_reference("Embedding")),
            usage=_USAGE,
        ),
        "Embedding": _object(
            ("object", "index", "embedding"),
            object={"type": "string", "enum": ["embedding"]},
            index=_COUNT,
            embedding={
                "oneOf": [
                    _list_of(_NUMBER),
                    {**_STRING, "description": "base64 of little-endian 32-bit floats"},
                ]
            },
        ),
    }


def _rerank_schemas() -> dict[str, Any]:
    document = {"oneOf": [_STRING, _object(("text",), text=_STRING)]}
    result = _object(
        ("index", "relevance_score"),
        index=_COUNT,
        relevance_score=_NUMBER,
        document=_object(("text",), text=_STRING),
    )
    return {
        "RerankRequest": _object(
            ("query", "documents"),
            query=_STRING,
            documents={"type": "array", "minItems": 1, "items": document},
            model=_MODEL,
            top_n={**_COUNT, "nullable": True, "description": "How many results; 0 gives all."},
            return_documents=_flag(False),
            raw_scores=_RAW_SCORES,
            use_activation=_flag(True),
            truncate=_flag(True),
            prompt_name={**_STRING, "nullable": True, "description": "One of the model's own prompts."},
            instruction={
                **_STRING,
                "nullable": True,
                "description": "What to look for, for rerankers that are language models.",
            },
        ),
        "RerankResponse": _object(
            ("id", "object", "created", "model", "results", "usage", "meta"),
            id=_STRING,
            object={"type": "string", "enum": ["rerank"]},
            created=_COUNT,
            model=_STRING,
            results=_list_of(result),
            usage=_USAGE,
            meta={"type": "object"},
        ),
    }


def _classify_schemas() -> dict[str, Any]:
    vllm = _object(
        ("index", "label", "probs", "num_classes"),
        index=_COUNT,
        label=_STRING,
        probs=_list_of(_NUMBER),
        num_classes=_COUNT,
    )
    return {
        "Label": _object(("label", "score"), label=_STRING, score=_NUMBER),
        "ClassifyRequest": _object(
            ("input",),
            input={"oneOf": [_STRING, _list_of(_STRING)]},
            model=_MODEL,
            raw_scores={
                **_RAW_SCORES,
                "description": "Scores without the model's activation; where it is present, the answer has "
                "Infinity's shape, else vLLM's.",
            },
            use_activation=_flag(True),
        ),
        "ClassifyResponse": _object(
            ("id", "object", "created", "model", "data", "usage"),
            id=_STRING,
            object={"type": "string", "enum": ["classify", "list"]},
            created=_COUNT,
            model=_STRING,
            data={"oneOf": [_list_of(_list_of(_reference("Label"))), _list_of(vllm)]},
            usage=_USAGE,
        ),
    }


def _tei_schemas() -> dict[str, Any]:
    texts = {"type": "array", "minItems": 1, "maxItems": 2, "items": _STRING}
    labels = _list_of({"oneOf": [_reference("Label"), _reference("Entity")]})
    entry = _object(("index", "value"), index=_COUNT, value=_NUMBER)
    return {
        "PredictRequest": _object(
            ("inputs",),
            inputs={"oneOf": [_STRING, texts, _list_of(texts)]},
            model=_MODEL,
            raw_scores=_RAW_SCORES,
            truncate=_flag(True),
            aggregation_strategy={"type": "string", "nullable": True, "enum": ["simple", "none", None]},
        ),
        "PredictResponse": {"oneOf": [labels, _list_of(labels)]},
        "Entity": _object(
            ("score", "word", "start", "end"),
            entity=_STRING,
            entity_group=_STRING,
            index=_COUNT,
            score=_NUMBER,
            word=_STRING,
            start=_COUNT,
            end=_COUNT,
        ),
        "TextsRequest": _object(
            ("inputs",),
            inputs={"oneOf": [_STRING, _list_of(_STRING)]},
            model=_MODEL,
            truncate=_flag(True),
            prompt_name={**_STRING, "nullable": True},
        ),
        "SparseResponse": _list_of(_list_of(entry)),
        "MultiVectorResponse": _list_of(_list_of(_list_of(_NUMBER))),
        "TeiProblem": _object(("error", "error_type"), error=_STRING, error_type=_STRING),
    }


def _model_schemas() -> dict[str, Any]:
    return {
        "Model": _object(
            ("id", "object", "created", "owned_by"),
            id=_STRING,
            object={"type": "string", "enum": ["model"]},
            created=_COUNT,
            owned_by=_STRING,
            root=_STRING,
            parent={**_STRING, "nullable": True},
            task={**_STRING, "description": "What it is for; this and all below are absent while it loads."},
            capabilities=_list_of(_STRING),
            max_model_len={**_COUNT, "description": "The longest input, in tokens."},
            dim={**_COUNT, "description": "Numbers in a row, or labels."},
            backend={**_STRING, "description": "The engine."},
            engine={**_STRING, "description": "The same."},
            precision=_STRING,
            accuracy={
                "allOf": [_reference("Accuracy")],
                "nullable": True,
                "description": "Null where `vecmill optimize` has not measured what is served.",
            },
        ),
        "Accuracy": _object(
            ("reference", "texts", "largest_difference", "scale", "cosine_min", "cosine_mean", "kept"),
            reference={**_STRING, "description": "What was compared with."},
            texts={**_COUNT, "description": "Over how many texts or pairs."},
            largest_difference=_NUMBER,
            scale={**_NUMBER, "description": "The largest number of the reference."},
            cosine_min={**_NUMBER, "nullable": True, "description": "Of the worst text; null for scores."},
            cosine_mean={**_NUMBER, "nullable": True},
            kept={
                **_NUMBER,
                "nullable": True,
                "description": "The share of nearest neighbours, best documents or labels that are the same.",
            },
        ),
        "ModelList": _object(
            ("object", "data"),
            object={"type": "string", "enum": ["list"]},
            data=_list_of(_reference("Model")),
        ),
    }


def _status_schemas() -> dict[str, Any]:
    text_or_null = {**_STRING, "nullable": True}
    return {
        "Status": _object(("status", "unix"), status=_STRING, unix={"type": "number"}),
        "Problem": _object(
            ("error", "message", "detail"),
            error=_object(
                ("message", "type", "param", "code"),
                message=_STRING,
                type=_STRING,
                param=text_or_null,
                code=text_or_null,
            ),
            message=_STRING,
            detail=_STRING,
        ),
    }
