"""Pictures by azure-ai-inference, whose endpoint ends in `/models` or not."""

from typing import Any

from azure.ai.inference import ImageEmbeddingsClient
from azure.ai.inference.models import ImageEmbeddingInput
from azure.core.credentials import AzureKeyCredential

from clients.drivers.report import base_url, report
from clients.inputs import PICTURE_MODEL, PICTURE_TEXT, PICTURES

URIS = [f"data:image/png;base64,{each}" for each in PICTURES]


def embed(path: str, **fields: Any) -> Any:
    client = ImageEmbeddingsClient(f"{base_url()}{path}", AzureKeyCredential("none is asked"), retry_total=0)
    inputs = [ImageEmbeddingInput(image=each, **fields) for each in URIS]
    return [each.embedding for each in client.embed(input=inputs, model=PICTURE_MODEL).data]


report(
    {
        "embed": lambda: embed("/models"),
        "embed at the root": lambda: embed(""),
        "error": lambda: embed("/models", text=PICTURE_TEXT),
    }
)
