"""LlamaIndex's embeddings of OpenAI's API and of TEI's, and its rerank of TEI's."""

from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, TEXTS, UNKNOWN

shared = {"api_base": f"{base_url()}/v1", "api_key": "none is asked"}
like = OpenAILikeEmbedding(model_name=EMBEDDER, **shared)
unknown = OpenAILikeEmbedding(model_name=UNKNOWN, **shared)
tei = TextEmbeddingsInference(model_name=EMBEDDER, base_url=base_url())
reranker = TextEmbeddingInference(base_url=base_url(), auth_token="none is asked")


def rank() -> list[list[object]]:
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(n))) for n, text in enumerate(DOCUMENTS)]
    found = reranker.postprocess_nodes(nodes, query_bundle=QueryBundle(QUERY))
    return [[int(entry.node.id_), entry.score] for entry in found]


report(
    {
        "embed": lambda: like.get_text_embedding_batch(TEXTS),
        "embed queries": lambda: [like.get_query_embedding(text) for text in TEXTS],
        "tei": lambda: tei.get_text_embedding_batch(TEXTS),
        "rerank": rank,
        "error": lambda: unknown.get_text_embedding_batch(TEXTS),
        "retried": lambda: len(like.get_text_embedding_batch(TEXTS[:2])),
    }
)
