"""The names of the APIs that the server answers, by which the OpenAPI document groups its operations."""

from collections.abc import Mapping
from enum import StrEnum


class Api(StrEnum):
    """An API. The order of the members is that of the groups at `/docs`."""

    OPENAI = "OpenAI"
    AZURE = "Azure OpenAI"
    COHERE = "Cohere"
    JINA = "Jina"
    VOYAGE = "Voyage"
    MISTRAL = "Mistral"
    TEI = "TEI"
    INFINITY = "Infinity"
    VLLM = "vLLM"
    OLLAMA = "Ollama"
    WEAVIATE = "Weaviate"
    LLAMA_CPP = "llama.cpp"
    MIXEDBREAD = "Mixedbread"
    NVIDIA = "NVIDIA"
    DEEPINFRA = "DeepInfra"
    PINECONE = "Pinecone"
    CLOUD = "Cloud platforms"
    BATCHES = "Files and batches"
    SERVER = "Server"
    OTHER_PATHS = "Other paths"


_V1 = "The base URL of clients ends in `/v1`."
_ROOT = "The base URL of clients is the address of the server."

# The descriptions of the groups.
API_NOTES: Mapping[Api, str] = {
    Api.OPENAI: _V1,
    Api.AZURE: f"Azure's paths of OpenAI's API. {_ROOT}",
    Api.COHERE: _ROOT,
    Api.JINA: _V1,
    Api.VOYAGE: _V1,
    Api.MISTRAL: _ROOT,
    Api.TEI: f"Hugging Face's Text Embeddings Inference. {_ROOT}",
    Api.INFINITY: _ROOT,
    Api.VLLM: _ROOT,
    Api.OLLAMA: _ROOT,
    Api.WEAVIATE: "The module reranker-transformers.",
    Api.LLAMA_CPP: _ROOT,
    Api.MIXEDBREAD: _ROOT,
    Api.NVIDIA: _ROOT,
    Api.DEEPINFRA: _ROOT,
    Api.PINECONE: _ROOT,
    Api.CLOUD: "Hugging Face Inference Endpoints, SageMaker and Vertex AI.",
    Api.BATCHES: "OpenAI's Batch API. It needs a server with the option `--batch-dir`.",
    Api.SERVER: "Probes, metrics and this documentation.",
    Api.OTHER_PATHS: "The same operations at the other paths that clients use.",
}
