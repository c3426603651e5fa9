"""Reads listwise rerankers, which read a query and all its documents as one text (jina-reranker-v3).

Source of the rules: `modeling.py` in the repository of jina-reranker-v3.
"""

from dataclasses import replace

from vecmill.architectures.decoder import JINA_LISTWISE, LISTWISE_WIDTH
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import read_flag
from vecmill.models.description import ModelDescription
from vecmill.models.heads import Head, HeadKind, ListTemplate
from vecmill.models.location import ModelLocation
from vecmill.models.published_code import names_any
from vecmill.values.task import Task

_DOCUMENT_MARK, _QUERY_MARK = "<|embed_token|>", "<|rerank_token|>"

TEMPLATE = ListTemplate(
    start=(
        "<|im_start|>system\n"
        "You are a search relevance expert who can determine a ranking of the passages based on how relevant "
        "they are to the query. If the query is a question, how relevant a passage is depends on how well it "
        "answers the question. If not, try to analyze the intent of the query and assess how well each "
        "passage satisfies the intent. If an instruction is provided, you should follow the instruction when "
        "determining the ranking.<|im_end|>\n"
        "<|im_start|>user\n"
        "I will provide you with {count} passages, each indicated by a numerical identifier. Rank the "
        "passages based on their relevance to query: {query}\n"
    ),
    instruction="<instruct>\n{instruction}\n</instruct>\n",
    document=f'<passage id="{{index}}">\n{{document}}{_DOCUMENT_MARK}\n</passage>\n',
    end=(
        f"<query>\n{{query}}{_QUERY_MARK}\n</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    ),
    document_mark=_DOCUMENT_MARK,
    query_mark=_QUERY_MARK,
    query_tokens=512,
    document_tokens=2048,
    most_documents=125,
)


def is_listwise(folder: TransformerFolder) -> bool:
    """Return whether the saved class reads lists."""
    return names_any(JINA_LISTWISE, folder.config)


def describe_listwise_reranker(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    """Describe a listwise reranker. Raises `UnsupportedModel` for one with a sliding window.

    That is how jina-reranker-v3.5 differs, whose limits of texts are others.
    """
    types = folder.config.get("layer_types") or []
    if read_flag(folder.config, "use_sliding_window", default=False) or "sliding_attention" in types:
        raise UnsupportedModel(
            f"{folder.path('config.json')}: a reranker of lists with a sliding window, such as "
            "jina-reranker-v3.5, is not supported; jina-reranker-v3 is."
        )
    return replace(
        folder.describe(location),
        task=Task.RERANK,
        head=Head(HeadKind.LIST),
        dim=LISTWISE_WIDTH,
        list_template=TEMPLATE,
    )
