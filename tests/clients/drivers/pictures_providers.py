"""Pictures by cohere, voyageai and openai, and zero-shot classification by huggingface_hub."""

import base64
import io
from dataclasses import asdict
from typing import Any

import cohere
import openai
import voyageai
from huggingface_hub import InferenceClient
from PIL import Image

from clients.drivers.report import base_url, report
from clients.inputs import LABELS, PICTURE_MODEL, PICTURE_TEXT, PICTURES

KEY = "none is asked"
FILES = [base64.b64decode(each) for each in PICTURES]
URIS = [f"data:image/png;base64,{each}" for each in PICTURES]
TEMPLATE = "a {}"

v1 = cohere.Client(api_key=KEY, base_url=base_url())
v2 = cohere.ClientV2(api_key=KEY, base_url=base_url())
voyage = voyageai.Client(api_key=KEY, base_url=f"{base_url()}/v1")
at_voyage = voyageai.Client(api_key=KEY, base_url=f"{base_url()}/voyage/v1")
plain = openai.OpenAI(api_key=KEY, base_url=f"{base_url()}/v1", max_retries=0)
hub = InferenceClient(model=base_url())


def of_cohere(client: Any = v2, **inputs: Any) -> Any:
    kinds = {"embedding_types": ["float"], "model": PICTURE_MODEL}
    return client.embed(**{"input_type": "image", **kinds, **inputs})


def of_voyage(client: voyageai.Client = voyage) -> Any:
    pictures = [Image.open(io.BytesIO(each)) for each in FILES]
    return client.multimodal_embed([*([each] for each in pictures), [PICTURE_TEXT]], model=PICTURE_MODEL)


def of_openai(inputs: Any) -> Any:
    found = plain.embeddings.create(model=PICTURE_MODEL, input=inputs, encoding_format="float").data
    return [each.embedding for each in found]


def labels(entries: Any) -> list[Any]:
    return [asdict(entry) for entry in entries]


def of_parts() -> Any:
    parts = [[{"type": "image_url", "image_url": {"url": each}}] for each in URIS]
    parts.append([{"type": "text", "text": PICTURE_TEXT}])
    return of_cohere(inputs=[{"content": each} for each in parts])


report(
    {
        "cohere v1": lambda: of_cohere(v1, images=URIS).embeddings.float_,
        "cohere v2": lambda: of_cohere(images=URIS).embeddings.float_,
        "cohere v2 in parts": lambda: of_parts().embeddings.float_,
        "cohere units": lambda: of_parts().meta.billed_units.dict(),
        "voyage": lambda: of_voyage().embeddings,
        "voyage at its own path": lambda: of_voyage(at_voyage).embeddings,
        "voyage usage": lambda: [
            getattr(of_voyage(), name)
            for name in ("text_tokens", "image_pixels", "video_pixels", "total_tokens")
        ],
        "openai": lambda: of_openai([{"image": each} for each in URIS]),
        "openai messages": lambda: (
            plain.post(
                "/embeddings",
                body={
                    "model": PICTURE_MODEL,
                    "messages": [
                        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URIS[0]}}]}
                    ],
                    "encoding_format": "float",
                },
                cast_to=openai.types.CreateEmbeddingResponse,
            )
            .data[0]
            .embedding
        ),
        "label a picture": lambda: labels(
            hub.zero_shot_image_classification(FILES[0], LABELS, hypothesis_template=TEMPLATE)
        ),
        "label a text": lambda: labels(
            hub.zero_shot_classification(PICTURE_TEXT, LABELS, hypothesis_template=TEMPLATE)
        ),
        "error of cohere": lambda: of_cohere(images=["data:image/png;base64,%%"]),
        "error of voyage": lambda: voyage.multimodal_embed(
            [[PICTURE_TEXT, Image.open(io.BytesIO(FILES[0]))]], model=PICTURE_MODEL
        ),
    }
)
