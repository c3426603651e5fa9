"""An example of each request body, and the APIs whose clients send the body, for the OpenAPI document.

Each example is answered by the first served model whose task fits it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.values.task import Task
from vecmill_server.app.openapi.operations import Api
from vecmill_server.dialects import (
    alibaba,
    cohere,
    deepinfra,
    embeddings_body,
    flag_embedding,
    hugging_face,
    label_bodies,
    llama_cpp,
    nvidia,
    ollama,
    openai,
    other_rerankers,
    pinecone,
    predict_body,
    rerank_body,
    score_and_classify_bodies,
    tei,
    tei_bodies,
    vllm,
    voyage,
    weaviate,
)
from vecmill_server.dialects.dialect import InferenceBody, InferenceRoute
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.token_ids import keep_ids


@dataclass(frozen=True, slots=True)
class Example:
    """An example of a body, and the APIs whose clients send such bodies."""

    body: Mapping[str, Any]
    apis: tuple[Api, ...]


_QUERY = "Where do cats sleep?"
_TEXT = "Cats sleep anywhere."
_TEXTS = [_TEXT, "Dogs bark."]
_IDS = [8870, 3637, 5973]
_RANKING = {"query": _QUERY, "documents": _TEXTS}
_TEI_RANKING = {"query": _QUERY, "texts": _TEXTS}
_LABELS = ["about cats", "about dogs"]
# A file of eight pixels by eight.
_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQAAAADsdIMmAAAAC0lEQVR42mNgQAUAABAAAaoZ+IIAAAAASUVO"
    "RK5CYII="
)

EXAMPLES: Mapping[type[InferenceBody], Example] = {
    embeddings_body.EmbeddingsRequest: Example(
        {"input": _TEXTS}, (Api.OPENAI, Api.JINA, Api.VOYAGE, Api.MISTRAL, Api.INFINITY, Api.VLLM)
    ),
    embeddings_body.ImageEmbeddingsRequest: Example({"input": [{"image": _PICTURE}]}, (Api.INFINITY,)),
    openai.DeploymentEmbeddingsRequest: Example({"input": _TEXTS}, (Api.AZURE,)),
    rerank_body.RerankRequest: Example(
        {**_RANKING, "top_n": 1}, (Api.COHERE, Api.JINA, Api.INFINITY, Api.VLLM)
    ),
    voyage.VoyageMultimodalRequest: Example(
        {"inputs": [{"content": [{"type": "text", "text": text}]} for text in _TEXTS]}, (Api.VOYAGE,)
    ),
    other_rerankers.VoyageRerankRequest: Example({**_RANKING, "top_k": 1}, (Api.VOYAGE,)),
    other_rerankers.VoyagePathRerankRequest: Example(_RANKING, (Api.VOYAGE,)),
    other_rerankers.WeaviateRerankRequest: Example({**_RANKING, "property": "text"}, (Api.WEAVIATE,)),
    weaviate.WeaviateVectorizeRequest: Example({"texts": _TEXTS, "images": []}, (Api.WEAVIATE,)),
    cohere.CohereEmbedRequest: Example(
        {"texts": _TEXTS, "input_type": "search_document", "embedding_types": ["float"]}, (Api.COHERE,)
    ),
    cohere.CohereEmbedV1Request: Example({"texts": _TEXTS, "input_type": "search_document"}, (Api.COHERE,)),
    cohere.CohereTokenizeRequest: Example({"text": _TEXT}, (Api.COHERE,)),
    cohere.DetokenizeRequest: Example({"tokens": _IDS}, (Api.COHERE,)),
    tei_bodies.TeiEmbedRequest: Example({"inputs": _TEXTS}, (Api.TEI,)),
    tei_bodies.TeiRerankRequest: Example(_TEI_RANKING, (Api.TEI,)),
    tei_bodies.SimilarityRequest: Example(
        {"inputs": {"source_sentence": _QUERY, "sentences": _TEXTS}}, (Api.TEI,)
    ),
    tei_bodies.SparseRequest: Example({"inputs": _TEXTS}, (Api.TEI,)),
    tei_bodies.EmbedAllRequest: Example({"inputs": _TEXTS}, (Api.TEI,)),
    tei.TeiTokenizeRequest: Example({"inputs": _TEXTS}, (Api.TEI,)),
    tei.DecodeRequest: Example({"ids": _IDS}, (Api.TEI,)),
    predict_body.PredictRequest: Example({"inputs": _TEXT}, (Api.TEI,)),
    flag_embedding.EncodeRequest: Example({"sentences": _TEXTS}, (Api.FLAG_EMBEDDING,)),
    score_and_classify_bodies.ScoreRequest: Example({"text_1": _QUERY, "text_2": _TEXTS}, (Api.VLLM,)),
    score_and_classify_bodies.ClassifyRequest: Example({"input": _TEXTS}, (Api.INFINITY, Api.VLLM)),
    label_bodies.ClassifyByLabelsRequest: Example(
        {"input": _TEXTS, "candidate_labels": _LABELS}, (Api.CLOUD,)
    ),
    label_bodies.JinaClassifyRequest: Example({"input": _TEXTS, "labels": _LABELS}, (Api.JINA,)),
    label_bodies.ZeroShotRequest: Example(
        {"inputs": _TEXT, "parameters": {"candidate_labels": _LABELS}}, (Api.CLOUD,)
    ),
    vllm.PoolingEmbedRequest: Example({"input": _TEXTS}, (Api.VLLM,)),
    vllm.PoolingTokenEmbedRequest: Example({"input": _TEXTS, "task": "token_embed"}, (Api.VLLM,)),
    vllm.PoolingClassifyRequest: Example({"input": _TEXTS, "task": "classify"}, (Api.VLLM,)),
    vllm.PoolingTokenClassifyRequest: Example({"input": _TEXTS, "task": "token_classify"}, (Api.VLLM,)),
    vllm.TokenizeRequest: Example({"prompt": _TEXT}, (Api.VLLM,)),
    vllm.VllmDetokenizeRequest: Example({"tokens": _IDS}, (Api.VLLM,)),
    ollama.OllamaEmbedRequest: Example({"input": _TEXTS}, (Api.OLLAMA,)),
    ollama.OllamaEmbeddingsRequest: Example({"prompt": _TEXT}, (Api.OLLAMA,)),
    llama_cpp.LlamaInputRequest: Example({"input": _TEXTS}, (Api.LLAMA_CPP,)),
    llama_cpp.LlamaContentRequest: Example({"content": _TEXTS}, (Api.LLAMA_CPP,)),
    llama_cpp.LlamaTokenizeRequest: Example({"content": _TEXT, "with_pieces": True}, (Api.LLAMA_CPP,)),
    other_rerankers.MixedbreadRerankRequest: Example(
        {"query": _QUERY, "input": _TEXTS, "top_k": 1}, (Api.MIXEDBREAD,)
    ),
    nvidia.NvidiaRankRequest: Example(
        {"query": {"text": _QUERY}, "passages": [{"text": text} for text in _TEXTS]}, (Api.NVIDIA,)
    ),
    deepinfra.DeepInfraRankRequest: Example({"queries": [_QUERY], "documents": _TEXTS}, (Api.DEEPINFRA,)),
    deepinfra.DeepInfraEmbedRequest: Example({"inputs": _TEXTS}, (Api.DEEPINFRA,)),
    pinecone.PineconeEmbedRequest: Example(
        {"inputs": [{"text": text} for text in _TEXTS], "parameters": {"input_type": "passage"}},
        (Api.PINECONE,),
    ),
    pinecone.PineconeRerankRequest: Example({**_RANKING, "top_n": 1}, (Api.PINECONE,)),
    nvidia.NvidiaPathRankRequest: Example(
        {"query": {"text": _QUERY}, "passages": [{"text": text} for text in _TEXTS]}, (Api.NVIDIA,)
    ),
    other_rerankers.FireworksRerankRequest: Example({**_RANKING, "top_n": 1}, (Api.FIREWORKS,)),
    alibaba.AlibabaCompatibleRerankRequest: Example({**_RANKING, "top_n": 1}, (Api.ALIBABA,)),
    alibaba.AlibabaRerankRequest: Example({"input": _RANKING, "parameters": {"top_n": 1}}, (Api.ALIBABA,)),
    alibaba.AlibabaEmbedRequest: Example(
        {"input": {"texts": _TEXTS}, "parameters": {"text_type": "document"}}, (Api.ALIBABA,)
    ),
    llama_cpp.LlamafileRequest: Example({"content": _TEXT}, (Api.LLAMA_CPP,)),
    ollama.OllamaShowRequest: Example({}, (Api.OLLAMA,)),
    ollama.OllamaPullRequest: Example({}, (Api.OLLAMA,)),
    ollama.OllamaRerankRequest: Example(_RANKING, (Api.OLLAMA,)),
    hugging_face.InvokedRerankRequest: Example(_RANKING, (Api.CLOUD,)),
    hugging_face.NestedRerankRequest: Example({"inputs": _TEI_RANKING}, (Api.CLOUD,)),
    hugging_face.VertexRequest: Example({"instances": [{"inputs": _TEXT}]}, (Api.CLOUD,)),
}

# The APIs of the paths that share their bodies with another API.
_APIS_OF_PATHS: Mapping[str, tuple[Api, ...]] = {
    "/openai/v1/embeddings": (Api.AZURE,),
    "/models/embeddings": (Api.AZURE,),
    "/images/embeddings": (Api.AZURE,),
    "/models/images/embeddings": (Api.AZURE,),
    "/voyage/v1/embeddings": (Api.VOYAGE,),
    "/compatible-mode/v1/embeddings": (Api.ALIBABA,),
    "/inference/v1/embeddings": (Api.FIREWORKS,),
    "/v1/openai/embeddings": (Api.DEEPINFRA,),
    "/": (Api.TEI, Api.CLOUD),
}


def examples_of(route: InferenceRoute) -> dict[str, Mapping[str, Any]]:
    """Return the examples of the bodies of a route, by the name of the body's schema."""
    return {body.component().name: EXAMPLES[body].body for body in route.bodies if body in EXAMPLES}


def apis_of(path: str, route: InferenceRoute) -> list[Api]:
    """Return the APIs whose clients use the path `path` of this route, in the order of the groups."""
    found = _APIS_OF_PATHS.get(path) or tuple(
        api for body in route.bodies if body in EXAMPLES for api in EXAMPLES[body].apis
    )
    return [api for api in Api if api in found]


def tasks_of(body: type[InferenceBody]) -> tuple[Task, ...]:
    """Return the tasks of the models that can answer the example of a body; empty if any model can."""
    return body.parse(EXAMPLES[body].body, _OPTIONS).request.tasks


def tasks_of_route(route: InferenceRoute) -> list[Task]:
    """Return the tasks of the models that can answer an example of a route; empty if any model can."""
    tasks = [tasks_of(body) for body in route.bodies if body in EXAMPLES]
    return [task for task in Task if all(tasks) and any(task in each for each in tasks)]


def needs_pictures(body: type[InferenceBody]) -> bool:
    """Return whether only models that embed pictures can answer the example of a body."""
    return bool(body.parse(EXAMPLES[body].body, _OPTIONS).request.pictures)


_OPTIONS = DialectOptions(keep_ids, lambda _name, _tasks=(), /: None)
