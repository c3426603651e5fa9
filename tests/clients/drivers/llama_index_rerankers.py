"""LlamaIndex's rerankers that use the APIs of Cohere, Jina, NVIDIA, SiliconFlow, Xinference and TEI."""

import os
from typing import Any

from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.nvidia_rerank import NVIDIARerank
from llama_index.postprocessor.siliconflow_rerank import SiliconFlowRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
from llama_index.postprocessor.xinference_rerank import XinferenceRerank

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, QUERY, RERANKER

URL = base_url()
KEY = "none is asked"
COUNT = len(DOCUMENTS)
os.environ.setdefault("NVIDIA_API_KEY", KEY)


def rank(reranker: Any) -> list[list[object]]:
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(n))) for n, text in enumerate(DOCUMENTS)]
    found = reranker.postprocess_nodes(nodes, query_bundle=QueryBundle(QUERY))
    return [[int(entry.node.id_), entry.score] for entry in found]


report(
    {
        "rerank cohere": lambda: rank(CohereRerank(model=RERANKER, api_key=KEY, base_url=URL, top_n=COUNT)),
        "rerank jina": lambda: rank(
            JinaRerank(model=RERANKER, api_key=KEY, base_url=f"{URL}/v1", top_n=COUNT)
        ),
        "rerank nvidia": lambda: rank(
            NVIDIARerank(model=RERANKER, api_key=KEY, base_url=f"{URL}/v1", top_n=COUNT)
        ),
        "rerank siliconflow": lambda: rank(
            SiliconFlowRerank(model=RERANKER, api_key=KEY, base_url=f"{URL}/v1/rerank", top_n=COUNT)
        ),
        "rerank tei": lambda: rank(TextEmbeddingInference(base_url=URL, auth_token=KEY, top_n=COUNT)),
        "rerank xinference": lambda: rank(XinferenceRerank(model=RERANKER, base_url=URL, top_n=COUNT)),
    }
)
