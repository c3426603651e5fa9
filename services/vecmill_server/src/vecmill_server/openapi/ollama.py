"""What `dialects.ollama` reads and writes, and what `routes.models` tells Ollama's clients."""

from vecmill_server.openapi.fields import DIMENSIONS, MODEL, TRUNCATION, inputs
from vecmill_server.openapi.operations import OLLAMA_PROBLEM, as_json, get, post
from vecmill_server.openapi.vocabulary import (
    COUNT,
    NUMBER,
    OPTIONAL_STRING,
    STRING,
    Family,
    an_object,
    any_of,
    described,
    list_of,
    reference,
)
from vecmill_server.settings import ServerSettings


def describe_ollama(settings: ServerSettings) -> Family:
    """`/api/...`."""
    problems = (OLLAMA_PROBLEM,)
    embed = post(
        "Embed texts", reference("OllamaEmbedRequest"), reference("OllamaEmbedResponse"), problems=problems
    )
    embeddings = post(
        "Embed a text",
        reference("OllamaEmbeddingsRequest"),
        reference("OllamaEmbeddingsResponse"),
        problems=problems,
    )
    rows = {
        "model": STRING,
        "embeddings": list_of(list_of(NUMBER)),
        "total_duration": COUNT,
        "load_duration": COUNT,
        "prompt_eval_count": COUNT,
    }
    none = {"type": "array", "nullable": True, "maxItems": 0, "items": {}}
    texts = described(any_of(*inputs(settings.token_ids)["anyOf"], none), "Texts; without any, no rows.")
    asked = {"input": texts, **MODEL, **TRUNCATION, **DIMENSIONS}
    words = ("parent_model", "format", "family", "parameter_size", "quantization_level")
    details = {**dict.fromkeys(words, STRING), "families": list_of(STRING)}
    tag = {
        **dict.fromkeys(("name", "model", "modified_at", "digest"), STRING),
        "size": COUNT,
        "details": an_object(tuple(details), details),
    }
    return Family(
        {
            "/api/embed": {"post": embed},
            "/api/embeddings": {"post": embeddings},
            "/api/tags": {"get": get("The models that are served", as_json(reference("OllamaTags")))},
            "/api/version": {"get": get("Our version", as_json(reference("OllamaVersion")))},
        },
        {
            "OllamaEmbedRequest": an_object((), asked),
            "OllamaEmbedResponse": an_object(tuple(rows), rows),
            "OllamaEmbeddingsRequest": an_object((), {"prompt": OPTIONAL_STRING, **MODEL}),
            "OllamaEmbeddingsResponse": an_object(("embedding",), {"embedding": list_of(NUMBER)}),
            "OllamaTags": an_object(("models",), {"models": list_of(an_object(tuple(tag), tag))}),
            "OllamaVersion": an_object(("version",), {"version": STRING}),
        },
    )
