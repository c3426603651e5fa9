"""azure-ai-inference's embeddings, whose endpoint ends in `/models`."""

from azure.ai.inference import EmbeddingsClient, load_client
from azure.core.credentials import AzureKeyCredential

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, UNKNOWN

endpoint, key = f"{base_url()}/models", AzureKeyCredential("none is asked")
client = EmbeddingsClient(endpoint, key, retry_total=0)

report(
    {
        "embed": lambda: [each.embedding for each in client.embed(input=TEXTS, model=EMBEDDER).data],
        "usage": lambda: client.embed(input=TEXTS, model=EMBEDDER).usage.total_tokens,
        "info": lambda: client.get_model_info().model_name,
        "class": lambda: type(load_client(endpoint, key)).__name__,
        "error": lambda: client.embed(input=TEXTS, model=UNKNOWN),
    }
)
