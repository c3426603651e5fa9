"""Azure's paths for OpenAI's `/embeddings`. One of the paths names the model."""

from vecmill_server.dialects.dialect import InferenceRoute
from vecmill_server.dialects.fields import Field
from vecmill_server.dialects.openai import EmbeddingsRequest
from vecmill_server.dialects.text_fields import MODEL
from vecmill_server.json_schema import ANYTHING, described


class DeploymentEmbeddingsRequest(EmbeddingsRequest):
    """The body of `/embeddings` at the Azure path that names the model."""

    model = Field({"model": described(ANYTHING, "Ignored: the path names the model.")}, MODEL.read)


ROUTES = (
    InferenceRoute(
        "embeddings",
        ("/openai/deployments/{model:path}/embeddings",),
        "Embed texts",
        (DeploymentEmbeddingsRequest,),
    ),
    InferenceRoute("embeddings", ("/openai/v1/embeddings",), "Embed texts", (EmbeddingsRequest,)),
)
