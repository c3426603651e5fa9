"""huggingface_hub's InferenceClient, which posts to the address itself and never retries."""

from dataclasses import asdict
from typing import Any

from huggingface_hub import InferenceClient

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, QUERY, TEXTS

client = InferenceClient(model=base_url())
classifier = InferenceClient(model=f"{base_url()}/predict")


def labels(**options: Any) -> list[Any]:
    return [asdict(entry) for entry in classifier.text_classification(TEXTS[0], **options)]


report(
    {
        "embed": lambda: client.feature_extraction(TEXTS),
        "embed short": lambda: client.feature_extraction(TEXTS, dimensions=64),
        "embed raw": lambda: client.feature_extraction(TEXTS, normalize=False),
        "similarity": lambda: client.sentence_similarity(QUERY, DOCUMENTS),
        "classify": labels,
        "best label": lambda: labels(top_k=1),
        "classify raw": lambda: labels(function_to_apply="none"),
        "error": lambda: client.feature_extraction(TEXTS, prompt_name="no-such-prompt"),
    }
)
