"""What `dialects.openai` reads and writes."""

from vecmill_server.dialects.fields import PURPOSES, ROW_TYPES
from vecmill_server.openapi.fields import (
    DIMENSIONS,
    MODALITY,
    MODEL,
    NORMALIZE,
    OUTPUTS,
    READING,
    ROW,
    envelope,
    inputs,
)
from vecmill_server.openapi.operations import at, path_parameter, post
from vecmill_server.openapi.vocabulary import (
    ANYTHING,
    COUNT,
    FLAG,
    NEVER,
    NOTHING,
    Family,
    Schema,
    an_object,
    any_of,
    described,
    list_of,
    not_both,
    of_the_model,
    reference,
    words_in_any_case,
)
from vecmill_server.settings import ServerSettings


def describe_openai(settings: ServerSettings) -> Family:
    """`/embeddings`, also where Azure's clients look for it."""
    summary, response = "Embed texts", reference("EmbeddingsResponse")
    plain = post(summary, reference("EmbeddingsRequest"), response)
    deployment = post(
        summary, reference("DeploymentEmbeddingsRequest"), response, parameters=[path_parameter("model")]
    )
    properties = {**_properties(), "input": inputs(settings.token_ids)}
    of_the_path = described(ANYTHING, "Ignored: the path names the model.")
    return Family(
        {
            **at("/v1/embeddings", "/embeddings", "/v1/embedding", "/openai/v1/embeddings", post=plain),
            "/openai/deployments/{model}/embeddings": {"post": deployment},
        },
        {
            "EmbeddingsRequest": _request(properties),
            "DeploymentEmbeddingsRequest": _request({**properties, "model": of_the_path}),
            "EmbeddingsResponse": envelope("list", data=list_of(reference("Embedding"))),
            "Embedding": an_object(
                ("object", "index", "embedding"),
                {
                    "object": {"type": "string", "enum": ["embedding"]},
                    "index": COUNT,
                    "embedding": any_of(*ROW["anyOf"], an_object((), dict.fromkeys(ROW_TYPES, ROW))),
                },
            ),
        },
    )


def _request(properties: dict[str, Schema]) -> Schema:
    return an_object(("input",), properties, **not_both("prompt", "prompt_name"))


def _properties() -> dict[str, Schema]:
    return {
        **MODEL,
        **OUTPUTS,
        **DIMENSIONS,
        **NORMALIZE,
        **READING,
        **MODALITY,
        "task": described(words_in_any_case(tuple(PURPOSES)), "As `input_type`, which it goes before."),
        "messages": described(NOTHING, "Send the text itself as `input`."),
        "late_chunking": of_the_model(
            FLAG,
            "Whether texts are read together, as chunks of one, by a multi-vector model. Each needs a token "
            "then, and floats or bits are written alone.",
        ),
        "return_multivector": described(NEVER, "/embed_all gives a row for each token."),
    }
