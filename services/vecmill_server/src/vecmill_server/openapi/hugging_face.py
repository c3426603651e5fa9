"""What `dialects.hugging_face` reads and writes: bodies that their keys and the model give a meaning."""

from typing import Any

from vecmill_server.openapi.fields import MODEL
from vecmill_server.openapi.operations import TEI_PROBLEM, at, post
from vecmill_server.openapi.vocabulary import (
    ANYTHING,
    Family,
    an_object,
    any_of,
    list_of,
    of_the_model,
    reference,
)
from vecmill_server.settings import ServerSettings

_REQUESTS = (
    "TeiEmbedRequest",
    "EmbedAllRequest",
    "SparseRequest",
    "PredictRequest",
    "SimilarityRequest",
    "TeiRerankRequest",
    "NestedRerankRequest",
)
_RESPONSES = (
    "RowsResponse",
    "MultiVectorResponse",
    "SparseResponse",
    "PredictResponse",
    "SimilarityResponse",
    "TeiRerankResponse",
)


def describe_hugging_face(settings: ServerSettings) -> Family:
    """`POST /`, SageMaker's `/invocations`, and Vertex AI's `/vertex`."""
    body, answer = any_of(*map(reference, _REQUESTS)), any_of(*map(reference, _RESPONSES))
    untold = _of_the_model(post("What the model is for", body, answer, problems=(TEI_PROBLEM,)))
    vertex = _of_the_model(
        post(
            "The same, several times",
            reference("VertexRequest"),
            reference("VertexResponse"),
            problems=(TEI_PROBLEM,),
        )
    )
    instances = {"type": "array", "minItems": 1, "items": body}
    parameters = {"type": "object", "nullable": True}
    return Family(
        {
            **at("/", "/invocations", post=untold),
            "/vertex": {"post": vertex},
        },
        {
            "NestedRerankRequest": an_object(("inputs",), {"inputs": reference("TeiRerankRequest"), **MODEL}),
            "VertexRequest": an_object(
                ("instances",),
                {
                    "instances": of_the_model(instances, "Each as the body of `POST /`."),
                    "parameters": of_the_model(parameters, "Fields of all instances that do not have them."),
                    **MODEL,
                },
            ),
            "VertexResponse": an_object(("predictions",), {"predictions": list_of(ANYTHING)}),
        },
    )


def _of_the_model(operation: dict[str, Any]) -> dict[str, Any]:
    """What a body asks is told by its keys, and where they do not say it, by what the model is for."""
    return {**operation, "x-depends-on-model": True}
