"""Azure's paths for OpenAI's `/embeddings`. One of the paths names the model."""

from vecmill_server.dialects.dialect import InferenceRoute
from vecmill_server.dialects.openai import EmbeddingsRequest
from vecmill_server.dialects.text_fields import PATH_MODEL


class DeploymentEmbeddingsRequest(EmbeddingsRequest):
    """The body of `/embeddings` at the Azure path that names the model."""

    model = PATH_MODEL


ROUTES = (
    InferenceRoute(
        "embeddings",
        ("/openai/deployments/{model:path}/embeddings",),
        "Embed texts",
        (DeploymentEmbeddingsRequest,),
    ),
    InferenceRoute("embeddings", ("/openai/v1/embeddings",), "Embed texts", (EmbeddingsRequest,)),
)
