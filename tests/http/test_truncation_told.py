"""Every dialect tells which inputs were cut and how many tokens each lost, as the tokenizer counts them."""

import dataclasses
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer as Library

from support.described_models import describe_tasks, describe_with_heads
from support.http_server import HttpServer, serve_in_thread
from support.texts import long_texts, mixed_texts
from support.tokenizers_of_kind import SIZE, save_tokenizer
from vecmill.config import InputConfig, MillConfig, OnLongInput
from vecmill.models import ModelDescription, Task
from vecmill.results import Truncated
from vecmill_server.dialects.truncated_inputs import MOST_IN_HEADER, truncated_headers

pytestmark = pytest.mark.promise("truncation-told")

LONGEST = 64
# `tests/tokenization/test_dropped_tokens.py` has all kinds in the quick tests too.
KINDS = (
    "word_piece of BERT",
    *(pytest.param(kind, marks=pytest.mark.full) for kind in ("byte_level", "byte_fallback", "unigram")),
)
QUERY = "which of these"

Inputs = Sequence[str]
Body = Callable[[Inputs], dict[str, Any]]


def of(name: str, **more: Any) -> Body:
    return lambda texts: {name: list(texts), **more}


@dataclasses.dataclass(frozen=True)
class Dialect:
    """A path, its body for some texts, the task of its model, and what it takes for an input."""

    path: str
    body: Body
    task: Task | str = Task.EMBED
    is_pair: bool = False
    is_list: bool = False  # the response
    query: bool = False  # which is embedded alone
    single: bool = False  # takes one text


EMBED, RERANK = Task.EMBED, Task.RERANK
ranked: Body = of("documents", query=QUERY)
DIALECTS = {
    "openai": Dialect("/v1/embeddings", of("input")),
    "azure": Dialect("/openai/deployments/{model}/embeddings", of("input")),
    "voyage": Dialect("/voyage/v1/embeddings", of("input", input_type="document")),
    "jina": Dialect("/v1/embeddings", of("input", task="text-matching", normalized=True)),
    "tei": Dialect("/embed", of("inputs"), is_list=True),
    "tei of all tokens": Dialect("/embed_all", of("inputs"), Task.MULTI_VECTOR, is_list=True),
    "tei sparse": Dialect("/embed_sparse", of("inputs"), Task.SPARSE, is_list=True),
    "tei rerank": Dialect("/rerank", of("texts", query=QUERY), RERANK, is_pair=True, is_list=True),
    "tei predict": Dialect(
        "/predict", lambda texts: {"inputs": [[text] for text in texts]}, Task.CLASSIFY, is_list=True
    ),
    "tei predict tokens": Dialect("/predict", of("inputs"), Task.CLASSIFY_TOKENS, is_list=True),
    "tei similarity": Dialect(
        "/similarity",
        lambda texts: {"inputs": {"source_sentence": texts[0], "sentences": list(texts[1:])}},
        is_list=True,
    ),
    "cohere": Dialect("/v2/embed", of("texts")),
    "cohere 1": Dialect("/v1/embed", of("texts")),
    "cohere rerank": Dialect("/v2/rerank", ranked, RERANK, is_pair=True),
    "rerank by embeddings": Dialect("/v1/rerank", ranked, query=True),
    "rerank by tokens": Dialect("/v1/rerank", ranked, Task.MULTI_VECTOR, query=True),
    "voyage rerank": Dialect("/rerank", of("documents", query=QUERY, top_k=None), RERANK, is_pair=True),
    "mixedbread": Dialect("/reranking", of("input", query=QUERY), RERANK, is_pair=True),
    "nvidia": Dialect("/ranking", of("passages", query=QUERY), RERANK, is_pair=True),
    "deepinfra": Dialect("/v1/inference/{model}", of("documents", queries=[QUERY]), RERANK, is_pair=True),
    "pinecone": Dialect("/pinecone/rerank", ranked, RERANK, is_pair=True),
    "nvidia hosted": Dialect(
        "/v1/retrieval/model/reranking", of("passages", query=QUERY), RERANK, is_pair=True
    ),
    "fireworks": Dialect("/inference/v1/rerank", ranked, RERANK, is_pair=True),
    "alibaba compatible": Dialect("/v1/reranks", ranked, RERANK, is_pair=True),
    "alibaba": Dialect(
        "/api/v1/services/rerank/text-rerank/text-rerank",
        lambda texts: {"input": ranked(texts)},
        RERANK,
        is_pair=True,
    ),
    "weaviate": Dialect("/rerank", of("documents", query=QUERY, property=""), RERANK, is_pair=True),
    "vllm score": Dialect("/score", of("text_2", text_1=QUERY), RERANK, is_pair=True),
    "vllm classify": Dialect("/classify", of("input"), Task.CLASSIFY),
    "infinity classify": Dialect("/classify", of("input", raw_scores=True), Task.CLASSIFY),
    "vllm pooling": Dialect("/pooling", of("input")),
    "vllm pooling of tokens": Dialect("/pooling", of("input"), Task.MULTI_VECTOR),
    "ollama": Dialect("/api/embed", of("input")),
    "ollama embeddings": Dialect("/api/embeddings", lambda texts: {"prompt": texts[0]}, single=True),
    "ollama rerank": Dialect("/api/rerank", ranked, RERANK, is_pair=True),
    "llama.cpp": Dialect("/embedding", of("input", truncate=True), is_list=True),
    "flag embedding": Dialect(
        "/encode", of("sentences", return_sparse=True, return_colbert_vecs=True), "heads"
    ),
    "vertex": Dialect("/vertex", lambda texts: {"instances": [{"inputs": text} for text in texts]}),
    "sagemaker": Dialect("/invocations", of("inputs"), is_list=True),
}


@dataclasses.dataclass(frozen=True)
class Served:
    """A server of a model for each task with a tokenizer of one kind, and that tokenizer."""

    server: HttpServer
    library: Library

    def truth(self, inputs: Sequence[Any]) -> dict[int, int]:
        """The tokens that each input loses, of those that lose any."""
        self.library.no_truncation()
        whole = [len(self.encode(each)) for each in inputs]
        self.library.enable_truncation(LONGEST)
        kept = [len(self.encode(each)) for each in inputs]
        pairs = enumerate(zip(whole, kept, strict=True))
        return {index: before - after for index, (before, after) in pairs if before > after}

    def encode(self, each: str | tuple[str, str]) -> Any:
        return self.library.encode(*each) if isinstance(each, tuple) else self.library.encode(each)


def describe_all(kind: str, folder: Path) -> list[ModelDescription]:
    described = [*describe_tasks().values(), describe_with_heads()]
    if kind == "word_piece of BERT":
        return [dataclasses.replace(each, max_tokens=LONGEST) for each in described]
    save_tokenizer(folder, kind, mixed_texts(1, 100), longest=LONGEST)
    return [
        dataclasses.replace(
            each,
            max_tokens=LONGEST,
            vocab_size=SIZE,
            tokenizer_file=folder / "tokenizer.json",
            tokenizer_config=json.loads((folder / "tokenizer_config.json").read_text()),
        )
        for each in described
    ]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the count on a machine that is busy with other tests."""
    monkeypatch.setattr("vecmill.operations.computation.COUNT_WAIT_S", 60.0)


@pytest.fixture(scope="module", params=KINDS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    models = describe_all(request.param, tmp_path_factory.mktemp("tokenizer"))
    library = Library.from_file(str(models[0].tokenizer_file))
    library.no_padding()
    with serve_in_thread(models=models) as server:
        yield Served(server, library)


def read_header(answer: httpx.Response) -> dict[int, int]:
    """The numbers in the header, which must all be exact."""
    entries = answer.headers.get("x-truncated", "").split(",")
    pairs = [entry.split("=") for entry in entries if entry not in ("", "...")]
    return {int(index): int(tokens) for index, tokens in pairs}


def draw_texts(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    prose = [*mixed_texts(seed, count // 2), *long_texts(seed, count // 4 + 1)]
    return [" ".join(draw.choices(prose, k=draw.choice((1, 1, 1, 3)))) for _ in range(count)]


def check(served: Served, dialect: Dialect, texts: list[str]) -> None:
    name = f"model/{dialect.task}"
    texts = texts[-1:] if dialect.single else texts
    answer = served.server.client.post(
        dialect.path.format(model=name), json={"model": name, **dialect.body(texts)}
    )
    assert answer.status_code == 200, answer.text
    inputs: list[Any] = [(QUERY, text) for text in texts] if dialect.is_pair else texts
    inputs = [*inputs, QUERY] if dialect.query else inputs
    truth = served.truth(inputs)
    assert int(answer.headers.get("x-truncated-inputs", 0)) == len(truth)
    first = dict(list(truth.items())[:MOST_IN_HEADER])
    assert read_header(answer) == first
    if dialect.is_list:
        assert isinstance(answer.json(), list)
        return
    told = answer.json().get("truncated", [])
    assert told == [{"index": index, "tokens": tokens} for index, tokens in truth.items()]


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("count", [12, pytest.param(499, marks=pytest.mark.full)])
def test_a_dialect_tells_what_the_tokenizer_counts(served: Served, name: str, count: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    check(served, DIALECTS[name], [*draw_texts(seed, count), *long_texts(seed, 1)])


@pytest.fixture(scope="module")
def refusing() -> Iterator[HttpServer]:
    config = MillConfig(inputs=InputConfig(on_long_input=OnLongInput.ERROR))
    with serve_in_thread(config=config, models=[*describe_tasks().values(), describe_with_heads()]) as server:
        yield server


LONG = "cat " * 300
# What a dialect says to let a long text be cut, if it is not `truncate: true`.
SAYS: Mapping[str, dict[str, Any]] = {
    "cohere": {"truncate": "END"},
    "vllm score": {"truncate_prompt_tokens": -1},
}


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if not dialect.single])
def test_an_operator_can_refuse_what_would_be_cut(refusing: HttpServer, name: str) -> None:
    dialect = DIALECTS[name]
    model = f"model/{dialect.task}"

    def post(texts: Inputs, **more: Any) -> httpx.Response:
        body = {"model": model, **dialect.body(texts), **more}
        if dialect.path == "/vertex":
            body = {"model": model, **dialect.body(texts), "parameters": more}
        return refusing.client.post(dialect.path.format(model=model), json=body)

    cut = post(["a cat", LONG], **SAYS.get(name, {"truncate": True}))
    assert cut.status_code == 200, cut.text
    assert list(read_header(cut)) == [1]
    assert post(["a cat", "cat " * 200]).status_code == 200
    refused = post(["a cat", LONG], truncate=None)
    assert refused.status_code in (400, 422), refused.text
    assert f" {302 + dialect.is_pair * (1 + len(QUERY.split()))} " in re.sub("[.(]", " ", refused.text)
    assert re.search(r"\w\[1\](`|\.inputs)", refused.text), refused.text
    assert "x-truncated" not in refused.headers


def test_what_an_operator_decided_is_told(refusing: HttpServer, server: HttpServer) -> None:
    assert refusing.client.get("/info").json()["auto_truncate"] is False
    assert server.client.get("/info").json()["auto_truncate"] is True
    told = [each.client.get("/v1/models").json()["data"][0]["on_long_input"] for each in (refusing, server)]
    assert told == ["error", "cut"]


def test_a_request_that_limits_its_tokens_asks_to_be_cut(refusing: HttpServer) -> None:
    body = {"input": LONG, "model": f"model/{Task.EMBED}", "truncate_prompt_tokens": 100}
    answer = refusing.client.post("/v1/embeddings", json=body)
    assert answer.json()["truncated"] == [{"index": 0, "tokens": 202}]


@pytest.mark.parametrize("cut", [MOST_IN_HEADER, MOST_IN_HEADER + 1])
def test_the_header_says_that_there_are_more_only_if_there_are(cut: int) -> None:
    (_, count), (_, told) = truncated_headers([Truncated(index, 7) for index in range(cut)])
    first = ",".join(f"{index}=7" for index in range(MOST_IN_HEADER))
    assert (int(count), told.decode()) == (cut, first if cut == MOST_IN_HEADER else f"{first},...")


def test_the_header_is_bounded(server: HttpServer) -> None:
    body = {"input": [LONG] * (2 * MOST_IN_HEADER), "dimensions": 1}
    value = server.client.post("/v1/embeddings", json=body).headers["x-truncated"]
    assert value.endswith(",...")
    assert value.count(",") == MOST_IN_HEADER
    assert len(value) < 1_024


def test_what_is_not_counted_to_its_end_has_a_lower_bound() -> None:
    config = MillConfig(inputs=InputConfig(max_counted_characters=0))
    with serve_in_thread(config=config) as server:
        answer = server.client.post("/v1/embeddings", json={"input": ["a cat", "cat " * 5_000]})
    (told,) = answer.json()["truncated"]
    assert told["at_least"] is True
    assert 0 < told["tokens"] < 5_000
    assert answer.headers["x-truncated"] == f"1>={told['tokens']}"
