"""Chunks, their pooled mean and late chunking are what the published formulas make of sentence-transformers.

The formula of the mean is that of vLLM's `enable_chunked_processing`: the sum of the chunks' embeddings, each
times its number of tokens, by the sum of these numbers. Late chunking is written from arXiv:2409.04701,
algorithms 1 and 2, with special tokens as in the code of its authors.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.test_directories import put_modules, save_dense, save_tensors
from support.reference import load_reference
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import Embed, MillConfig, SyncMill, TextOptions
from vecmill.engines import ENGINES
from vecmill.models import locate_model
from vecmill.requests import Chunking, ChunkingMode
from vecmill.results import EmbedResult
from vecmill.values.aliases import FloatArray

pytestmark = pytest.mark.promise("exact-chunks")

SEED = 9
PROMPT = "represent this: "
LONG = " ".join(mixed_texts(SEED, 40))[:2_000]
TEXTS = ["", "x", "in the [SEP] end", "日本 😀 e\u0301", "the one " * 15, LONG]
INSTALLED = [name for name, entry in ENGINES.items() if entry.is_installed and name not in ("fake", "neuron")]


def add_dense(directory: Path) -> None:
    activation = "torch.nn.modules.activation.Tanh"
    save_dense(directory / "2_Dense", 32, 16, activation_function=activation)
    save_tensors(directory / "2_Dense", 3, linear__weight=(16, 32), linear__bias=(16,))
    put_modules(directory, "Transformer:", "Pooling:1_Pooling", "Dense:2_Dense", "Normalize:3_Normalize")


def add_layer_norm(directory: Path) -> None:
    (directory / "2_LayerNorm").mkdir()
    (directory / "2_LayerNorm/config.json").write_text('{"dimension": 32}')
    save_tensors(directory / "2_LayerNorm", 3, norm__weight=(32,), norm__bias=(32,))
    put_modules(directory, "Transformer:", "Pooling:1_Pooling", "LayerNorm:2_LayerNorm")


def unchanged(directory: Path) -> None:
    pass


VARIANTS: dict[str, tuple[TinyBert, Callable[[Path], None]]] = {
    "mean": (TinyBert(), unchanged),
    "unnormalized": (TinyBert(normalize=False), unchanged),
    "without_prompt": (TinyBert(include_prompt=False), unchanged),
    "dense": (TinyBert(), add_dense),
    "layer_norm": (TinyBert(), add_layer_norm),
}
# Every variant on one engine, and the embedded model on every engine; a tiny one takes less to compile.
CASES = [*((name, "onnx") for name in VARIANTS), *(("embedded", engine) for engine in INSTALLED)]
QUICK = {("without_prompt", "onnx"), ("dense", "onnx"), ("embedded", "onnx"), ("dense", "openvino")}
CASES += [("dense", engine) for engine in INSTALLED if engine == "openvino"]
PARAMS = [
    pytest.param(case, id="-".join(case), marks=() if case in QUICK else pytest.mark.full) for case in CASES
]

Opened = tuple[SyncMill, "Oracle"]


class Oracle:
    """sentence-transformers, which is given token ids; its answers are recorded."""

    def __init__(self, directory: Path, longest: int) -> None:
        self._reference, self._longest = load_reference(directory), longest

    @cache  # noqa: B019 (an oracle lives as long as its module's tests)
    def tokens(self, text: str, prompt: str) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """The ids of the prompt, those of the text, and the places of the latter."""
        asked, ids, places = self._ask("tokens", text, prompt)
        return asked, ids, places

    def encode(self, ids: list[int], prompt_length: int) -> FloatArray:
        """The embedding of a text with these ids, and those that frame it."""
        found: FloatArray = self._ask("encode", ids, prompt_length)
        return found

    def late(self, text: str, prompt: str, chunks: list[tuple[int, int]]) -> FloatArray:
        """The embeddings of the chunks, which are ranges of tokens."""
        found: FloatArray = self._ask("late", text, prompt, chunks)
        return found

    def _ask(self, name: str, *given: Any) -> Any:
        return self._reference.ask(
            [name, self._longest, list(given)],
            lambda model: getattr(Program(model, self._longest), name)(*given),
        )


class Program:
    """What an oracle asks, computed."""

    def __init__(self, model: Any, longest: int) -> None:
        self.model, self.longest = model, longest

    def tokens(self, text: str, prompt: str) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        read = self.model.tokenizer(
            prompt + text, add_special_tokens=False, return_offsets_mapping=True, truncation=False
        )
        pairs = list(zip(read["input_ids"], read["offset_mapping"], strict=True))
        first = next((at for at, (_, (_, end)) in enumerate(pairs) if end > len(prompt)), len(pairs))
        places = [(start - len(prompt), end - len(prompt)) for _, (start, end) in pairs[first:]]
        return [token for token, _ in pairs[:first]], [token for token, _ in pairs[first:]], places

    def encode(self, ids: list[int], prompt_length: int) -> FloatArray:
        return np.asarray(self._forward(self.frame(ids), prompt_length)["sentence_embedding"][0])

    def hidden(self, ids: list[int]) -> Any:
        return self._forward(ids, 0)["token_embeddings"][0]

    def finish(self, mean: Any) -> FloatArray:
        """What the modules after the mean make of it."""
        features = {"sentence_embedding": mean[None]}
        for module in list(self.model)[2:]:
            features = module(features)
        return np.asarray(features["sentence_embedding"][0].detach())

    def frame(self, ids: list[int]) -> list[int]:
        tokenizer = self.model.tokenizer
        return [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]

    def late(self, text: str, prompt: str, chunks: list[tuple[int, int]]) -> FloatArray:
        import torch

        asked, ids, _ = self.tokens(text, prompt)
        lead = 1 + len(asked)
        room = self.longest - lead - 1
        shared = min(256, room // 4)
        rows = []
        start = 0
        while True:
            found = self.hidden(self.frame([*asked, *ids[start : start + room]]))
            is_last = start + room >= len(ids)
            rows.append(found[lead + shared if start else 0 : len(found) if is_last else -1])
            if is_last:
                break
            start += room - shared
        whole = torch.cat(rows)
        pooling = list(self.model)[1]
        begin = 0 if pooling.include_prompt or not prompt else lead
        means = []
        for number, (first, last) in enumerate(chunks):
            low = begin if number == 0 else lead + first
            high = len(whole) if number == len(chunks) - 1 else lead + last
            means.append(self.finish(whole[low:high].mean(dim=0)))
        return np.stack(means)

    def _forward(self, ids: list[int], prompt_length: int) -> Any:
        import torch

        features: dict[str, Any] = {
            "input_ids": torch.tensor([ids]),
            "attention_mask": torch.ones(1, len(ids), dtype=torch.int64),
            "token_type_ids": torch.zeros(1, len(ids), dtype=torch.int64),
        }
        if prompt_length:
            features["prompt_length"] = prompt_length
        with torch.no_grad():
            return self.model(features)


@pytest.fixture(scope="module", params=PARAMS)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kept_models: Path
) -> Iterator[Opened]:
    name, engine = request.param
    directory = locate_model().directory
    if name != "embedded":
        model, change = VARIANTS[name]
        directory = save_tiny_bert(tmp_path_factory.mktemp("model") / "tiny", model)
        change(directory)
    with ExitStack() as stack:
        mill = stack.enter_context(SyncMill(directory, MillConfig(engine=engine, cache_dir=kept_models)))
        yield mill, Oracle(directory, mill.info.max_tokens)


def embed(mill: SyncMill, mode: str, prompt: str = "", **settings: Any) -> EmbedResult:
    chunking = Chunking(ChunkingMode(mode), settings.pop("tokens", None), settings.pop("overlap", 0))
    options = TextOptions(prompt=prompt)
    return mill.run(Embed(tuple(TEXTS), chunking=chunking, options=options, **settings))


def test_chunks_are_the_texts_of_their_tokens(opened: Opened) -> None:
    mill, oracle = opened
    for prompt in ("", PROMPT):
        found = embed(mill, "chunks", prompt, tokens=20, overlap=4)
        assert found.chunks is not None
        for row, chunk in zip(found.embeddings, found.chunks, strict=True):
            asked, ids, places = oracle.tokens(TEXTS[chunk.text], prompt)
            first = chunk.index * 16
            own = ids[first : first + 20]
            assert chunk.token_count == len(own)
            assert chunk.start == (places[first][0] if first else 0)
            prompt_length = 1 + len(asked) if prompt else 0
            expected = oracle.encode([*asked, *own], prompt_length)
            np.testing.assert_allclose(row, expected, atol=1e-5)


def test_the_pooled_embedding_is_the_mean_of_vllm(opened: Opened) -> None:
    mill, _ = opened
    is_unit = bool(np.allclose(np.linalg.norm(embed(mill, "chunks").embeddings, axis=1), 1, atol=1e-5))
    for overlap in (0, 4):
        chunks = embed(mill, "chunks", tokens=20, overlap=overlap)
        pooled = embed(mill, "pooled", tokens=20, overlap=overlap)
        assert chunks.chunks is not None
        for index in range(len(TEXTS)):
            own = [at for at, chunk in enumerate(chunks.chunks) if chunk.text == index]
            weights = [chunks.chunks[at].token_count for at in own]
            rows = chunks.embeddings[own].astype(np.float64)
            mean = rows[0] if len(own) == 1 else (rows * np.array(weights)[:, None]).sum(0) / sum(weights)
            expected = mean / np.linalg.norm(mean) if is_unit else mean
            np.testing.assert_allclose(pooled.embeddings[index], expected, atol=1e-6)


def test_late_chunks_are_those_of_the_paper(opened: Opened) -> None:
    mill, oracle = opened
    for prompt, size, overlap in (("", 7, 3), (PROMPT, 50, 0)):
        found = embed(mill, "late", prompt, tokens=size, overlap=overlap)
        assert found.chunks is not None
        for index, text in enumerate(TEXTS):
            rows = found.embeddings[[at for at, one in enumerate(found.chunks) if one.text == index]]
            own = [chunk for chunk in found.chunks if chunk.text == index]
            starts = [chunk.index * (size - overlap) for chunk in own]
            ranges = [(start, start + one.token_count) for start, one in zip(starts, own, strict=True)]
            np.testing.assert_allclose(rows, oracle.late(text, prompt, ranges), atol=1e-5)


def test_a_text_of_one_chunk_has_its_usual_embedding(opened: Opened) -> None:
    mill, _ = opened
    texts = tuple(TEXTS[:4])
    for prompt in ("", PROMPT):
        options = TextOptions(prompt=prompt)
        usual = mill.run(Embed(texts, options=options)).embeddings
        for mode in ChunkingMode:
            found = mill.run(Embed(texts, options=options, chunking=Chunking(mode)))
            np.testing.assert_allclose(found.embeddings, usual, atol=1e-6, err_msg=mode)


def test_the_chunks_of_a_client_are_read_together_too(opened: Opened) -> None:
    mill, oracle = opened
    inputs = ("the one", "of these", "is it")
    found = mill.run(Embed(inputs, late_chunking=True))
    counts = [len(oracle.tokens(text, "")[1]) for text in inputs]
    ends = np.cumsum(counts).tolist()
    ranges = [(end - count, end) for end, count in zip(ends, counts, strict=True)]
    np.testing.assert_allclose(found.embeddings, oracle.late(" ".join(inputs), "", ranges), atol=1e-5)
    assert found.token_count == sum(counts) + 2
