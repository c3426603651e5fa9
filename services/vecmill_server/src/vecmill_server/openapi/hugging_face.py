"""What `dialects.hugging_face` reads and writes: bodies that their keys and the model give a meaning."""

from vecmill_server.openapi.fields import MODEL
from vecmill_server.openapi.operations import TEI_PROBLEM, at, post
from vecmill_server.openapi.vocabulary import (
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
    untold = post("What the model is for", body, answer, problems=(TEI_PROBLEM,))
    vertex = post(
        "The same, several times",
        reference("VertexRequest"),
        reference("VertexResponse"),
        problems=(TEI_PROBLEM,),
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
            "VertexResponse": an_object(("predictions",), {"predictions": list_of(answer)}),
        },
    )
