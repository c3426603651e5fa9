"""No field that changes numbers is ignored: each field of each API is read, refused or known to be harmless.

`PUBLISHED` has the fields that the API references and the sources of clients name, each with a value that
is not the default, in a body that is otherwise the shortest.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from vecmill.errors import RequestError
from vecmill.models import Task
from vecmill_server.dialects.alibaba import AlibabaEmbedRequest
from vecmill_server.dialects.cohere import CohereEmbedRequest, CohereEmbedV1Request
from vecmill_server.dialects.deepinfra import DeepInfraEmbedRequest, DeepInfraRankRequest
from vecmill_server.dialects.dialect import InferenceBody
from vecmill_server.dialects.dialect_routes import ROUTES
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.llama_cpp import LlamaContentRequest, LlamaTokenizeRequest
from vecmill_server.dialects.nvidia import NvidiaRankRequest
from vecmill_server.dialects.ollama import (
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaPullRequest,
    OllamaRerankRequest,
    OllamaShowRequest,
)
from vecmill_server.dialects.other_rerankers import (
    MixedbreadRerankRequest,
    VoyagePathRerankRequest,
    VoyageRerankRequest,
)
from vecmill_server.dialects.pinecone import PineconeEmbedRequest, PineconeRerankRequest
from vecmill_server.dialects.predict_body import PredictRequest
from vecmill_server.dialects.rerank_body import RerankRequest
from vecmill_server.dialects.score_and_classify_bodies import ClassifyRequest, ScoreRequest
from vecmill_server.dialects.tei import DecodeRequest, TeiTokenizeRequest
from vecmill_server.dialects.tei_bodies import (
    EmbedAllRequest,
    SimilarityRequest,
    SparseRequest,
    TeiEmbedRequest,
    TeiRerankRequest,
)
from vecmill_server.dialects.token_ids import keep_ids
from vecmill_server.dialects.vllm import (
    PoolingClassifyRequest,
    PoolingEmbedRequest,
    PoolingTokenClassifyRequest,
    PoolingTokenEmbedRequest,
    TokenizeRequest,
)

OPTIONS = DialectOptions(keep_ids, lambda _name, _tasks=(), /: Task.EMBED)
Values = Mapping[str, Any]

INPUT = {"input": "a"}
PAIR = {"query": "a", "documents": ["b"]}
TEI = {"inputs": "a"}

COMMON: Values = {"model": "m", "user": "u"}
VLLM: Values = {
    **COMMON,
    "truncate_prompt_tokens": 5,
    "truncation_side": "left",
    "padding": "max_length",
    "request_id": "r",
    "priority": 1,
    "mm_processor_kwargs": {"a": 1},
    "cache_salt": "salt",
}
VLLM_INPUT: Values = {
    **VLLM,
    "add_special_tokens": False,
    "messages": [{"role": "user", "content": "a"}],
    "chat_template": "{{ a }}",
    "chat_template_kwargs": {"a": 1},
    "add_generation_prompt": True,
    "continue_final_message": True,
    "media_io_kwargs": {"a": {}},
    "late_chunking_params": {"chunk_size": 2},
}
VLLM_ENCODING: Values = {"encoding_format": "base64", "embed_dtype": "float16", "endianness": "big"}
VLLM_EMBED: Values = {**VLLM_INPUT, **VLLM_ENCODING, "dimensions": 8, "use_activation": False}
VLLM_CLASSIFY: Values = {**VLLM_INPUT, "use_activation": False, "activation": False, "softmax": False}
VLLM_SCORE: Values = {
    **VLLM,
    "use_activation": False,
    "activation": False,
    "max_tokens_per_query": 5,
    "max_tokens_per_doc": 5,
    "instruction": "i",
    "chat_template_kwargs": {"a": 1},
    "chat_template": "{{ a }}",
}
TEI_OPTIONS: Values = {"truncate": False, "truncation_direction": "left", "prompt_name": "query"}

# The API -> its body, the shortest such body, and the other fields that the API has.
PUBLISHED: dict[str, tuple[type[InferenceBody], Values, Values]] = {
    "OpenAI embeddings": (EmbeddingsRequest, INPUT, {**COMMON, "encoding_format": "base64", "dimensions": 8}),
    "Mistral embeddings": (
        EmbeddingsRequest,
        INPUT,
        {
            "model": "m",
            "metadata": {},
            "output_dimension": 8,
            "output_dtype": "int8",
            "encoding_format": "base64",
        },
    ),
    "Jina embeddings": (
        EmbeddingsRequest,
        INPUT,
        {
            "model": "m",
            "task": "retrieval.query",
            "dimensions": 8,
            "normalized": False,
            "embedding_type": "binary",
            "late_chunking": True,
            "truncate": False,
            "return_multivector": True,
        },
    ),
    "Voyage embeddings": (
        EmbeddingsRequest,
        INPUT,
        {
            "model": "m",
            "input_type": "query",
            "truncation": False,
            "output_dimension": 8,
            "output_dtype": "int8",
            "encoding_format": "base64",
        },
    ),
    "Infinity embeddings": (
        EmbeddingsRequest,
        INPUT,
        {**COMMON, "encoding_format": "base64", "dimensions": 8, "modality": "audio"},
    ),
    "Fireworks embeddings": (
        EmbeddingsRequest,
        INPUT,
        {"model": "m", "prompt_template": "{a}", "dimensions": 8, "normalize": True},
    ),
    "LiteLLM and RAGFlow embeddings": (EmbeddingsRequest, INPUT, {"drop_params": True}),
    "vLLM embeddings": (EmbeddingsRequest, INPUT, VLLM_EMBED),
    "vLLM pooling, embed": (PoolingEmbedRequest, INPUT, VLLM_EMBED),
    "vLLM pooling, token_embed": (
        PoolingTokenEmbedRequest,
        {**INPUT, "task": "token_embed"},
        {**VLLM_EMBED, "normalize": True},
    ),
    "vLLM pooling, classify": (
        PoolingClassifyRequest,
        {**INPUT, "task": "classify"},
        {**VLLM_CLASSIFY, **VLLM_ENCODING, "dimensions": 8, "normalize": True},
    ),
    "vLLM pooling, token_classify": (
        PoolingTokenClassifyRequest,
        {**INPUT, "task": "token_classify"},
        {**VLLM_CLASSIFY, **VLLM_ENCODING, "dimensions": 8, "normalize": True},
    ),
    "vLLM classify": (ClassifyRequest, INPUT, VLLM_CLASSIFY),
    "Infinity classify": (ClassifyRequest, INPUT, {"model": "m", "raw_scores": True, "modality": "image"}),
    "vLLM score": (ScoreRequest, {"queries": "a", "documents": "b"}, VLLM_SCORE),
    "vLLM rerank": (RerankRequest, PAIR, {**VLLM_SCORE, "top_n": 1}),
    "Cohere rerank 2": (
        RerankRequest,
        PAIR,
        {"model": "m", "top_n": 1, "max_tokens_per_doc": 5, "priority": 1},
    ),
    "Cohere rerank 1": (
        RerankRequest,
        {"query": "a", "documents": [{"text": "b", "title": "c"}]},
        {
            "model": "m",
            "top_n": 1,
            "rank_fields": ["title"],
            "return_documents": True,
            "max_chunks_per_doc": 10,
        },
    ),
    "Jina rerank": (
        RerankRequest,
        PAIR,
        {"model": "m", "top_n": 1, "return_documents": True, "max_doc_length": 5, "max_query_length": 5},
    ),
    "Infinity rerank": (
        RerankRequest,
        PAIR,
        {"model": "m", "top_n": 1, "return_documents": True, "raw_scores": True},
    ),
    "SiliconFlow rerank": (
        RerankRequest,
        PAIR,
        {"model": "m", "instruction": "i", "max_chunks_per_doc": 2, "overlap_tokens": 80},
    ),
    "Xinference rerank": (
        RerankRequest,
        PAIR,
        {"model": "m", "return_documents": True, "return_len": True, "kwargs": "{}"},
    ),
    "Voyage rerank": (
        VoyageRerankRequest,
        {**PAIR, "top_k": None},
        {"model": "m", "top_k": 1, "return_documents": True, "truncation": False},
    ),
    "Voyage rerank, own path": (
        VoyagePathRerankRequest,
        PAIR,
        {"model": "m", "top_k": 1, "return_documents": False, "truncation": False},
    ),
    "Cohere embed 2": (
        CohereEmbedRequest,
        {"texts": ["a"]},
        {
            "model": "m",
            "input_type": "search_query",
            "images": ["a"],
            "max_tokens": 5,
            "output_dimension": 8,
            "embedding_types": ["int8"],
            "truncate": "NONE",
            "priority": 1,
        },
    ),
    "Cohere embed 1": (
        CohereEmbedV1Request,
        {"texts": ["a"]},
        {
            "model": "m",
            "input_type": "search_query",
            "images": ["a"],
            "embedding_types": ["int8"],
            "truncate": "NONE",
        },
    ),
    "TEI embed": (TeiEmbedRequest, TEI, {**TEI_OPTIONS, "normalize": False, "dimensions": 8}),
    "TEI embed_all": (EmbedAllRequest, TEI, TEI_OPTIONS),
    "TEI embed_sparse": (SparseRequest, TEI, TEI_OPTIONS),
    "TEI similarity": (
        SimilarityRequest,
        {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
        {**TEI_OPTIONS, "parameters": {"truncate": False}},
    ),
    "TEI predict": (
        PredictRequest,
        TEI,
        {"raw_scores": True, "truncate": False, "truncation_direction": "left"},
    ),
    "TEI rerank": (
        TeiRerankRequest,
        {"query": "a", "texts": ["b"]},
        {"truncate": False, "truncation_direction": "left", "raw_scores": True, "return_text": True},
    ),
    "TEI tokenize": (TeiTokenizeRequest, TEI, {"add_special_tokens": False, "prompt_name": "query"}),
    "TEI decode": (DecodeRequest, {"ids": [5]}, {"skip_special_tokens": False}),
    "vLLM tokenize": (
        TokenizeRequest,
        {"prompt": "a"},
        {"add_special_tokens": False, "return_token_strs": True},
    ),
    "Hugging Face pipelines": (
        PredictRequest,
        TEI,
        {
            "top_k": 1,
            "function_to_apply": "none",
            "aggregation_strategy": "none",
            "ignore_labels": ["MISC"],
            "stride": 2,
            "options": {"use_cache": False},
            "parameters": {"top_k": 1},
        },
    ),
    "Ollama embed": (
        OllamaEmbedRequest,
        INPUT,
        {"model": "m", "truncate": False, "dimensions": 8, "options": {"num_ctx": 5}, "keep_alive": "5m"},
    ),
    "Ollama embeddings": (
        OllamaEmbeddingsRequest,
        {"prompt": "a"},
        {"model": "m", "options": {"num_ctx": 5}, "keep_alive": "5m"},
    ),
    "Ollama show": (
        OllamaShowRequest,
        {},
        {
            "model": "m",
            "name": "m",
            "verbose": True,
            "system": "s",
            "template": "t",
            "options": {"num_ctx": 5},
        },
    ),
    "Ollama pull": (
        OllamaPullRequest,
        {},
        {"model": "m", "name": "m", "insecure": True, "stream": False},
    ),
    "Dify rerank, Ollama models": (OllamaRerankRequest, PAIR, {"model": "m", "top_n": 1}),
    "llama.cpp embedding": (
        LlamaContentRequest,
        {"content": "a"},
        {**COMMON, "embd_normalize": -1, "dimensions": 8, "truncate": True},
    ),
    "llama.cpp tokenize": (
        LlamaTokenizeRequest,
        {"content": "a"},
        {"add_special": True, "with_pieces": True, "parse_special": False},
    ),
    "Mixedbread rerank": (
        MixedbreadRerankRequest,
        {"query": "a", "input": [{"text": "b", "title": "c"}]},
        {"model": "m", "rank_fields": ["title"], "top_k": 1, "return_input": True, "rewrite_query": True},
    ),
    "NVIDIA ranking": (
        NvidiaRankRequest,
        {"query": {"text": "a"}, "passages": [{"text": "b"}]},
        {**COMMON, "truncate": "NONE"},
    ),
    "DeepInfra rerank": (
        DeepInfraRankRequest,
        {"queries": ["a"], "documents": ["b"]},
        {"user": "u", "instruction": "i"},
    ),
    "DeepInfra embeddings": (
        DeepInfraEmbedRequest,
        TEI,
        {"user": "u", "normalize": True, "image": "a", "webhook": "b", "dimensions": 8},
    ),
    "Alibaba embeddings": (
        AlibabaEmbedRequest,
        {"input": {"texts": ["a"]}},
        {"model": "m", "parameters": {"text_type": "query", "dimension": 8}},
    ),
    "Pinecone embed": (
        PineconeEmbedRequest,
        {"inputs": [{"text": "a"}]},
        {**COMMON, "parameters": {"input_type": "query", "truncate": "NONE", "dimension": 8}},
    ),
    "Pinecone rerank, chunks": (
        PineconeRerankRequest,
        {"query": "a", "documents": ["b"]},
        {"parameters": {"max_chunks_per_doc": 3}},
    ),
    "Pinecone rerank": (
        PineconeRerankRequest,
        {"query": "a", "documents": [{"text": "b", "title": "c"}]},
        {
            "model": "m",
            "top_n": 1,
            "return_documents": False,
            "rank_fields": ["title"],
            "parameters": {"truncate": "NONE"},
        },
    ),
}
# Pairs that have a meaning only together: what has to stand beside a field for it to change something.
BESIDE: dict[str, Values] = {
    "embed_dtype": {"encoding_format": "base64"},
    "endianness": {"encoding_format": "base64"},
}


def outcome(kind: type[InferenceBody], body: Values) -> object:
    """What becomes of a body: what it asks and how the answer is written, or what is wrong with it."""
    try:
        asked = kind.parse(body, OPTIONS)
    except RequestError as error:
        return error.field
    write = asked.write
    written = (write.func, write.args) if isinstance(write, partial) else (write, ())
    return asked.model, asked.request, written, asked.keep_s


@pytest.mark.parametrize("api", PUBLISHED)
def test_a_published_field_is_read_or_refused_or_harmless(api: str) -> None:
    kind, shortest, values = PUBLISHED[api]
    for name, value in values.items():
        usual = {**shortest, **BESIDE.get(name, {})}
        before, after = outcome(kind, usual), outcome(kind, {**usual, name: value})
        if name in kind.harmless:
            assert after == before, f"{name} is not harmless"
        else:
            assert after != before, f"{name} is ignored"
        if isinstance(after, str):  # a refusal has the name of the field
            assert after.partition("[")[0] == name


def test_the_shortest_bodies_are_accepted() -> None:
    refused = {api: outcome(kind, shortest) for api, (kind, shortest, _) in PUBLISHED.items()}
    assert {api: found for api, found in refused.items() if isinstance(found, str)} == {}


def test_a_harmless_field_has_a_reason_and_is_not_read() -> None:
    for kind in {body for route in ROUTES for body in route.bodies}:
        read = {name for field in kind.fields() for name in field.properties}
        assert read & kind.harmless.keys() == set(), kind
        assert all(reason.endswith(".") for reason in kind.harmless.values()), kind
