"""OpenAI's and Azure's `/embeddings`, whose body is that of seven APIs, and Azure's `/images/embeddings`."""

from vecmill_server.dialects import text_fields
from vecmill_server.dialects.dialect import EMBEDDINGS_PATHS, InferenceRoute
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest, ImageEmbeddingsRequest


class DeploymentEmbeddingsRequest(EmbeddingsRequest):
    """The body of `/embeddings` at the Azure path that names the model."""

    model = text_fields.PATH_MODEL


ROUTES = (
    InferenceRoute("embeddings", (*EMBEDDINGS_PATHS, "/v1/embedding"), "Embed texts", (EmbeddingsRequest,)),
    InferenceRoute(
        "embeddings",
        ("/openai/deployments/{model:path}/embeddings",),
        "Embed texts",
        (DeploymentEmbeddingsRequest,),
    ),
    InferenceRoute(
        "embeddings", ("/openai/v1/embeddings", "/models/embeddings"), "Embed texts", (EmbeddingsRequest,)
    ),
    InferenceRoute(
        "embeddings",
        ("/images/embeddings", "/models/images/embeddings"),
        "Embed pictures, as Azure",
        (ImageEmbeddingsRequest,),
    ),
)
