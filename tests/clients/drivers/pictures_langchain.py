"""Pictures by infinity_client, at both of its routes, and by LangChain's class for Jina."""

import base64
from pathlib import Path
from typing import Any

from infinity_client import Client
from infinity_client.api.default import embeddings, embeddings_image
from infinity_client.models import (
    ImageEmbeddingInput,
    OpenAIEmbeddingInputImage,
    OpenAIEmbeddingInputImageModality,
)
from langchain_community.embeddings import jina

from clients.drivers.report import base_url, report
from clients.inputs import PICTURE_MODEL, PICTURES

URIS = [f"data:image/png;base64,{each}" for each in PICTURES]
client = Client(base_url=base_url(), raise_on_unexpected_status=True)
jina.JINA_API_URL = f"{base_url()}/v1/embeddings"


def rows(answer: Any) -> list[list[float]]:
    return [each.embedding for each in answer.data]


def by_langchain() -> Any:
    """The class tells a file from a URL, and sends the bytes of a file."""
    paths = [Path(f"{index}.png") for index in range(len(PICTURES))]
    for path, content in zip(paths, PICTURES, strict=True):
        path.write_bytes(base64.b64decode(content))
    embedder = jina.JinaEmbeddings(jina_api_key="none is asked", model_name=PICTURE_MODEL)
    return embedder.embed_images(list(map(str, paths)))


report(
    {
        "embed": lambda: rows(
            embeddings.sync(
                client=client,
                body=OpenAIEmbeddingInputImage(
                    input_=URIS, model=PICTURE_MODEL, modality=OpenAIEmbeddingInputImageModality.IMAGE
                ),
            )
        ),
        "embed at the older route": lambda: rows(
            embeddings_image.sync(client=client, body=ImageEmbeddingInput(input_=URIS, model=PICTURE_MODEL))
        ),
        "embed by langchain": by_langchain,
    }
)
