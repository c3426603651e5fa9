"""Every client's package gets the plain rows and scores, and raises its own errors with our words.

The drivers that make the calls are in `drivers`, and run where the packages are installed.
"""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.inputs import CLASSIFIER, DOCUMENTS, EMBEDDER, HARD_TEXT, QUERY, RERANKER, TEXTS, UNKNOWN
from clients.tables import at_its_size, cases
from support.client_packages import GROUPS, Ask, drive
from support.http_server import DIM, serve_in_thread
from support.plain_http import embed, get, post
from support.server import LiveServer
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import OutputDtype
from vecmill_server.base.settings import RerankDocument, ServerSettings

# What the package litellm calls its providers.
LITELLM = ("hosted_vllm", "infinity", "cohere", "jina_ai", "voyage", "huggingface")
# The packages of hosted APIs.
HOSTED = ("azure_inference", "dashscope", "deepinfra", "pinecone")
ROWS = {
    "openai@openai-oldest": ["embed", "embed as floats"],
    "openai": ["embed", "embed as floats"],
    "cohere": ["embed v1", "embed v2"],
    "voyageai": ["embed", "embed documents"],
    "mistralai": ["embed"],
    "ollama": ["embed", "latest"],
    "huggingface_hub": ["embed"],
    "langchain": ["embed", "infinity"],
    "langchain_providers": ["embed cohere", "embed jina", "embed mistral", "embed ollama", "embed voyage"],
    "ai_sdk@npm": ["embed openai", "embed openai-compatible", "embed cohere"],
    "cohere_ai@npm": ["embed v1", "embed v2"],
    "huggingface_inference@npm": ["embed"],
    "llamaindex@npm": ["embed"],
    "voyageai@npm": ["embed", "embed documents"],
    "infinity_client": ["embed", "embed by name"],
    "llama_index": ["embed", "tei"],
    "litellm": [*(f"embed {provider}" for provider in ("openai", "dashscope", *LITELLM))],
    "haystack": ["embed"],
    "mteb": ["server"],
    **{client: ["embed"] for client in HOSTED},
}
ROWS_ONE_BY_ONE = {
    "ollama": ["embed one by one"],
    "langchain": ["embed queries"],
    "langchain_providers": [
        "embed queries cohere",
        "embed queries jina",
        "embed queries mistral",
        "embed queries ollama",
        "embed queries voyage",
    ],
    "ai_sdk@npm": ["embed one by one"],
    "llamaindex@npm": ["embed queries"],
    "llama_index": ["embed queries"],
    "haystack": ["embed one by one", "tei"],
}
SHORT_ROWS = {
    "voyageai": ["embed short"],
    "mistralai": ["embed short"],
    "ollama": ["embed short"],
    "huggingface_hub": ["embed short"],
    "ai_sdk@npm": ["embed short openai", "embed short openai-compatible"],
    "huggingface_inference@npm": ["embed short"],
    "llamaindex@npm": ["embed short"],
    "voyageai@npm": ["embed short"],
    "dashscope": ["embed short"],
}
RANKINGS = {
    "cohere": ["rerank v1", "rerank v2", "rerank v2 at /v1"],
    "voyageai": ["rerank", "rerank at its own path"],
    "langchain": ["rerank"],
    "langchain_providers": ["rerank cohere", "rerank jina", "rerank voyage"],
    "ai_sdk@npm": ["rerank"],
    "cohere_ai@npm": ["rerank v1", "rerank v2"],
    "voyageai@npm": ["rerank"],
    "infinity_client": ["rerank"],
    "lightrag": ["rerank alibaba", "rerank cohere", "rerank jina"],
    "llama_index": ["rerank"],
    "llama_index_rerankers": [
        "rerank cohere",
        "rerank jina",
        "rerank siliconflow",
        "rerank tei",
        "rerank xinference",
    ],
    "redisvl": ["rerank", "rerank voyage"],
    "litellm": [f"rerank {provider}" for provider in (*LITELLM, "dashscope", "fireworks_ai", "azure_ai")],
    "haystack": ["rerank"],
    "dashscope": ["rerank"],
    "pinecone": ["rerank"],
}
BEST = {
    "cohere": ["best of v2"],
    "voyageai": ["best"],
    "ai_sdk@npm": ["best"],
    "cohere_ai@npm": ["best of v2"],
    "voyageai@npm": ["best"],
    "dashscope": ["best"],
    "pinecone": ["best"],
}
USAGES = {
    "openai@openai-oldest": ["usage"],
    "openai": ["usage"],
    "cohere": ["usage v1", "usage v2"],
    "voyageai": ["usage"],
    "mistralai": ["usage"],
    "ollama": ["usage"],
    "ai_sdk@npm": ["usage openai", "usage openai-compatible", "usage cohere"],
    "cohere_ai@npm": ["usage v1", "usage v2"],
    "voyageai@npm": ["usage"],
    "infinity_client": ["usage"],
    "litellm": ["usage"],
    "haystack": ["usage"],
    **{client: ["usage"] for client in HOSTED},
}
# Each has two texts, of which one is cut: the field of the response that says so is in no client's way.
CUT = {
    "openai@openai-oldest": ["cut"],
    "openai": ["cut"],
    "cohere": ["cut v1", "cut v2", "cut in a rerank"],
    "voyageai": ["cut", "cut in a rerank"],
    "mistralai": ["cut"],
    "ollama": ["cut"],
}
HUGGING_FACE = ("huggingface_hub", "huggingface_inference@npm")
NOT_FOUND = (UNKNOWN, EMBEDDER)  # a message says what was asked for, and what there is
TOO_LONG = ("maximum context length is 256 tokens",)
ERRORS = [
    ("openai@openai-oldest", "error", "NotFoundError", NOT_FOUND),
    ("openai", "error", "NotFoundError", NOT_FOUND),
    ("cohere", "error", "NotFoundError", NOT_FOUND),
    ("cohere", "error v1", "NotFoundError", NOT_FOUND),
    ("cohere", "too long", "BadRequestError", TOO_LONG),
    ("voyageai", "error", "InvalidRequestError", TOO_LONG),
    ("voyageai", "unknown model", "APIError", NOT_FOUND),
    ("mistralai", "error", "SDKError", NOT_FOUND),
    ("ollama", "error", "ResponseError", ("no-such-model", "try pulling it first")),
    ("ollama", "too long", "ResponseError", TOO_LONG),
    ("huggingface_hub", "error", "HfHubHTTPError", ("no-such-prompt",)),
    ("langchain", "error", "NotFoundError", NOT_FOUND),
    ("langchain", "infinity error", "Exception", NOT_FOUND),
    ("langchain_providers", "error cohere", "NotFoundError", NOT_FOUND),
    ("langchain_providers", "error jina", "RuntimeError", NOT_FOUND),
    ("langchain_providers", "error mistral", "HTTPStatusError", ("404",)),  # the words of httpx
    ("langchain_providers", "error ollama", "ResponseError", (UNKNOWN, "try pulling it first")),
    ("langchain_providers", "error voyage", "APIError", NOT_FOUND),
    ("ai_sdk@npm", "error openai", "APICallError", NOT_FOUND),
    ("ai_sdk@npm", "error openai-compatible", "APICallError", NOT_FOUND),
    ("ai_sdk@npm", "error cohere", "APICallError", NOT_FOUND),
    ("ai_sdk@npm", "too long", "APICallError", TOO_LONG),
    ("cohere_ai@npm", "error", "NotFoundError", NOT_FOUND),
    ("cohere_ai@npm", "error v1", "NotFoundError", NOT_FOUND),
    ("cohere_ai@npm", "too long", "BadRequestError", TOO_LONG),
    ("huggingface_inference@npm", "error", "InferenceClientProviderApiError", ("no-such-prompt",)),
    ("llamaindex@npm", "error", "NotFoundError", NOT_FOUND),
    ("voyageai@npm", "error", "VoyageAIError", NOT_FOUND),
    ("voyageai@npm", "too long", "VoyageAIError", TOO_LONG),
    ("infinity_client", "error", "UnexpectedStatus", NOT_FOUND),
    ("llama_index", "error", "NotFoundError", NOT_FOUND),
    ("litellm", "error", "NotFoundError", NOT_FOUND),
    ("litellm", "error of hosted_vllm", "NotFoundError", NOT_FOUND),
    ("litellm", "too long", "ContextWindowExceededError", TOO_LONG),
    ("haystack", "error", "NotFoundError", NOT_FOUND),
    ("azure_inference", "error", "ResourceNotFoundError", NOT_FOUND),
    ("dashscope", "error", "ValueError", NOT_FOUND),  # of the driver: the client raises nothing
    ("deepinfra", "error", "NotFoundError", NOT_FOUND),
    ("pinecone", "error", "NotFoundError", NOT_FOUND),
    ("mteb", "error", "RuntimeError", ("messages",)),
]


@pytest.mark.parametrize(("client", "call"), cases(ROWS))
def test_rows_are_the_plain_ones(ask: Ask, rows: FloatArray, client: str, call: str) -> None:
    np.testing.assert_array_equal(as_rows(ask(client, call).unwrap()), rows)


@pytest.mark.parametrize(("client", "call"), cases(ROWS_ONE_BY_ONE))
def test_rows_of_single_texts_are_the_plain_ones(
    ask: Ask, single_rows: FloatArray, client: str, call: str
) -> None:
    np.testing.assert_array_equal(as_rows(ask(client, call).unwrap()), single_rows)


@pytest.mark.full
def test_stock_langchain_gets_the_plain_rows_of_a_server_that_reads_its_token_ids(
    ask: Ask, rows: FloatArray, single_rows: FloatArray
) -> None:
    """It has no token ids for an empty text, and asks for that one alone."""
    empty = np.array([not text for text in TEXTS])[:, None]
    expected = np.where(empty, single_rows, rows)
    np.testing.assert_array_equal(as_rows(ask("langchain", "embed stock").unwrap()), expected)


@pytest.mark.parametrize(("client", "call"), cases(SHORT_ROWS))
def test_short_rows_are_the_plain_ones(ask: Ask, zoo: LiveServer, client: str, call: str) -> None:
    expected = embed(zoo.url, TEXTS, model=EMBEDDER, dimensions=64)
    np.testing.assert_array_equal(as_rows(ask(client, call).unwrap()), expected)


def encode_before_normalising(model: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(modules=[model[0], model[1]], device="cpu").encode(TEXTS)


def test_huggingface_hub_gets_rows_before_the_model_normalises_them(ask: Ask, oracle: Any) -> None:
    """As Text Embeddings Inference gives them."""
    raw = oracle.ask(["before the model normalises", TEXTS], encode_before_normalising)
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.5
    found = as_rows(ask("huggingface_hub", "embed raw").unwrap())
    np.testing.assert_allclose(found, raw, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("client", "call"), cases(USAGES))
def test_usage_is_the_tokens_that_were_read(ask: Ask, tokens: int, client: str, call: str) -> None:
    assert ask(client, call).unwrap() == tokens


@pytest.mark.parametrize(("client", "call"), cases(CUT))
def test_a_text_that_is_cut_is_answered(ask: Ask, client: str, call: str) -> None:
    assert ask(client, call).unwrap() == 2


@pytest.mark.parametrize(("client", "call"), cases(RANKINGS))
def test_scores_are_the_plain_ones(ask: Ask, ranking: list[list[float]], client: str, call: str) -> None:
    assert ask(client, call).unwrap() == ranking


@pytest.mark.parametrize(("client", "call"), cases(BEST))
def test_the_best_alone(ask: Ask, ranking: list[list[float]], client: str, call: str) -> None:
    assert ask(client, call).unwrap() == ranking[:1]


@pytest.mark.parametrize(("client", "call", "kind", "words"), [at_its_size(*each) for each in ERRORS])
def test_errors_are_the_clients_own_with_our_words(
    ask: Ask, client: str, call: str, kind: str, words: tuple[str, ...]
) -> None:
    error = ask(client, call).raised()
    assert kind in error.types, error
    assert [word for word in words if word not in error.message] == [], error.message


KINDS_AT_ONCE = {
    "cohere": ["embed v1 in kinds", "embed v2 in kinds"],
    "cohere_ai@npm": ["embed v2 in kinds"],
}
ONE_KIND = {
    "voyageai": ["embed as int8", "embed as uint8", "embed as binary", "embed as ubinary"],
    "mistralai": ["embed as int8"],
    "voyageai@npm": ["embed as int8"],
}


@pytest.mark.parametrize(("client", "call"), cases(KINDS_AT_ONCE))
def test_cohere_gets_every_kind_of_row_at_once(ask: Ask, zoo: LiveServer, client: str, call: str) -> None:
    found = ask(client, call).unwrap()
    for kind in OutputDtype:
        np.testing.assert_array_equal(as_rows(found[kind]), rows_of(zoo, kind))
    assert [len(row) for row in found["base64"]] == [len(base64.b64encode(bytes(4 * DIM)))] * len(TEXTS)


@pytest.mark.parametrize(("client", "call"), cases(ONE_KIND))
def test_rows_of_another_kind_are_the_plain_ones(ask: Ask, zoo: LiveServer, client: str, call: str) -> None:
    kind = OutputDtype(call.removeprefix("embed as "))
    np.testing.assert_array_equal(as_rows(ask(client, call).unwrap()), rows_of(zoo, kind))


def test_cohere_gets_documents_and_tokens(ask: Ask, ranking: list[list[float]]) -> None:
    texts = [DOCUMENTS[int(index)] for index, _ in ranking]
    assert ask("cohere", "rerank v1 with documents").unwrap() == texts
    assert ask("cohere", "tokenize").unwrap() == ["A", " short", " text", "."]
    assert ask("cohere", "tokenize and join").unwrap() == HARD_TEXT


@pytest.mark.parametrize("client", ["openai@openai-oldest", "openai"])
def test_openai_finds_the_models(ask: Ask, client: str) -> None:
    assert ask(client, "models").unwrap() == [EMBEDDER, RERANKER, CLASSIFIER]
    assert ask(client, "model").unwrap() == EMBEDDER


def test_cohere_finds_the_models(ask: Ask) -> None:
    """As apps do that check a key."""
    assert ask("cohere", "models").unwrap() == [
        [EMBEDDER, ["embed", "rerank"], 256],
        [RERANKER, ["rerank"], 40],
        [CLASSIFIER, ["classify"], 40],
    ]


# Ollama's clients know models by name and tag.
TAGGED = [f"{model}:latest" for model in (EMBEDDER, RERANKER, CLASSIFIER)]


def test_ollama_finds_what_a_model_is(ask: Ask) -> None:
    assert ask("ollama", "show").unwrap() == [["embedding"], "bert", 256, 384]
    assert ask("ollama", "running").unwrap() == TAGGED
    error = ask("ollama", "show unknown").raised()
    assert "ResponseError" in error.types
    assert "try pulling it first" in error.message


def test_ollama_finds_the_models(ask: Ask) -> None:
    assert ask("ollama", "models").unwrap() == TAGGED


@pytest.mark.parametrize(("client", "call"), cases({client: ["similarity"] for client in HUGGING_FACE}))
def test_hugging_face_compares_sentences(ask: Ask, zoo: LiveServer, client: str, call: str) -> None:
    query, *documents = embed(zoo.url, [QUERY, *DOCUMENTS], model=EMBEDDER)
    found = ask(client, call).unwrap()
    np.testing.assert_allclose(found, np.stack(documents) @ query, rtol=0, atol=1e-6)


@pytest.mark.parametrize("client", [at_its_size(client) for client in HUGGING_FACE])
def test_hugging_face_gets_labels(ask: Ask, zoo: LiveServer, client: str) -> None:
    (expected,) = post(f"{zoo.url}/predict", {"model": CLASSIFIER, "inputs": [[TEXTS[0]]]})
    assert ask(client, "classify").unwrap() == expected
    assert ask(client, "best label").unwrap() == expected[:1]


def test_hugging_face_gets_labels_before_the_softmax(ask: Ask, zoo: LiveServer) -> None:
    (expected,) = post(f"{zoo.url}/predict", {"model": CLASSIFIER, "inputs": [[TEXTS[0]]]})
    raw = {entry["label"]: entry["score"] for entry in ask("huggingface_hub", "classify raw").unwrap()}
    assert max(raw, key=raw.__getitem__) == expected[0]["label"]
    assert sum(raw.values()) != pytest.approx(1)


@pytest.mark.full
def test_llama_index_gets_logits_from_nvidias_api(ask: Ask, ranking: list[list[float]]) -> None:
    found = ask("llama_index_rerankers", "rerank nvidia").unwrap()
    assert [place for place, _ in found] == [place for place, _ in ranking]
    scores = 1 / (1 + np.exp([-logit for _, logit in found]))
    np.testing.assert_allclose(scores, [score for _, score in ranking], rtol=1e-5)


@pytest.mark.full
def test_infinity_gets_labels_models_and_health(ask: Ask, zoo: LiveServer) -> None:
    answer = post(f"{zoo.url}/classify", {"model": CLASSIFIER, "input": TEXTS, "raw_scores": False})
    expected = [[[entry["label"], entry["score"]] for entry in entries] for entries in answer["data"]]
    assert ask("infinity_client", "classify").unwrap() == expected
    assert ask("infinity_client", "models").unwrap() == [[EMBEDDER, 0], [RERANKER, 0], [CLASSIFIER, 0]]
    assert ask("infinity_client", "health").unwrap() is True


@pytest.mark.full
@pytest.mark.parametrize("provider", ["cohere", "hosted_vllm", "jina_ai", "huggingface"])
def test_litellm_gets_documents(ask: Ask, ranking: list[list[float]], provider: str) -> None:
    texts = [DOCUMENTS[int(index)] for index, _ in ranking]
    assert ask("litellm", f"documents {provider}").unwrap() == texts


@pytest.mark.full
def test_litellms_voyage_asks_as_cohere_does(ask: Ask) -> None:
    assert "APIConnectionError" in ask("litellm", "voyage elsewhere").raised().types


@pytest.mark.full
def test_litellms_infinity_gets_documents_where_the_server_writes_them_as_strings(tmp_path: Path) -> None:
    """That provider wants strings and the others objects: each fails where it gets the other."""
    providers = ("infinity", "hosted_vllm")
    calls = [f"documents {provider}" for provider in providers]
    for written, served in zip((RerankDocument.STRING, RerankDocument.OBJECT), providers, strict=True):
        settings = ServerSettings(lame_duck_s=0, rerank_document=written, alias=("tiny-reranker",))
        with serve_in_thread(settings) as server:
            url = f"http://127.0.0.1:{server.port}"
            outcomes = drive("litellm", GROUPS["litellm"], url, tmp_path, *calls)
        assert [name for name in calls if outcomes[name].error is None] == [f"documents {served}"]


@pytest.mark.full
def test_mteb_gets_the_plain_rows_but_of_empty_texts(ask: Ask, rows: FloatArray) -> None:
    expected = np.array([row if text else 0 * row for text, row in zip(TEXTS, rows, strict=True)])
    np.testing.assert_array_equal(as_rows(ask("mteb", "embed").unwrap()), expected)


@pytest.mark.full
def test_mteb_gets_the_plain_scores(ask: Ask, ranking: list[list[float]]) -> None:
    scores = [score for _, score in sorted(ranking)]
    # The texts may be in other calls than those of the fixture, which round in another way.
    np.testing.assert_allclose(ask("mteb", "scores").unwrap(), np.array(scores, np.float32), rtol=1e-5)


def test_the_server_is_well_after_all_of_it(zoo: LiveServer) -> None:
    assert get(f"{zoo.url}/readyz")["status"] == "ready"


def as_rows(found: Any) -> FloatArray:
    """What a client gave, in the precision in which it was sent."""
    return np.array(found, np.float32)


def rows_of(server: LiveServer, kind: OutputDtype) -> FloatArray:
    """The plain rows of `TEXTS` in so many bits."""
    return embed(server.url, TEXTS, model=EMBEDDER, output_dtype=kind)


@pytest.mark.full
def test_pinecone_lists_the_models(ask: Ask) -> None:
    assert {EMBEDDER, RERANKER} <= set(ask("pinecone", "models").unwrap())
    assert ask("pinecone", "embedders").unwrap() == [EMBEDDER]
    assert ask("pinecone", "model").unwrap() == 384


@pytest.mark.full
def test_azure_s_client_chooses_a_class_by_the_model(ask: Ask) -> None:
    assert ask("azure_inference", "info").unwrap() == EMBEDDER
    assert ask("azure_inference", "class").unwrap() == "EmbeddingsClient"
