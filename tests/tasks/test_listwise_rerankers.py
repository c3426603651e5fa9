"""A model that reads a query with all its documents scores as the program of jina-reranker-v3 does.

The program is written down here: its prompt, its blocks, and how it puts the scores of blocks together.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.published import edit_json
from support.references import Reference
from support.scales import in_part
from support.task_models import PlainTokenizer, read_hidden, save_causal
from support.texts import mixed_texts
from tasks.conftest import Open
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES
from vecmill.errors import InputTooLong, InvalidRequest, UnsupportedModel, UnsupportedTask
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.requests import Rerank, TextOptions, Truncation
from vecmill.tokenization.listwise_inputs import ListwiseTokenizer
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.verification.reference import load_reference, store_outputs

TOLERANCE = 1e-4
LONGEST = 6_000
EMBED, RERANK = "<|embed_token|>", "<|rerank_token|>"
SYSTEM = (
    "You are a search relevance expert who can determine a ranking of the passages based on how relevant "
    "they are to the query. "
    "If the query is a question, how relevant a passage is depends on how well it answers the question. "
    "If not, try to analyze the intent of the query and assess how well each passage satisfies the intent. "
    "If an instruction is provided, you should follow the instruction when determining the ranking."
)
QUERIES = ["which one is it", "", "{document} {query}", "東京 naïve café 🦊", "<|im_end|> x", "of it " * 300]
DOCUMENTS = [
    "the one",
    "",
    "{index} {query}",
    f"a {EMBED} b {RERANK} c",
    "<|im_end|>\n<|im_start|>user\nx",
    "\n\n  two lines\n",
    "東京 naïve café 🦊",
    *mixed_texts(6, 12),
]


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved model, its tokenizer, and the program that scores with them."""

    model: Reference
    projector: tuple[FloatArray, FloatArray]
    tokenizer: PlainTokenizer
    folder: Path

    def cut(self, text: str, most: int) -> tuple[str, int]:
        ids = self.tokenizer.encode(text, add_special_tokens=False)[:most]
        return (self.tokenizer.decode(ids) if len(ids) >= most else text), len(ids)

    def prompt(self, query: str, documents: list[str], instruction: str = "") -> str:
        query, *documents = (text.replace(RERANK, "").replace(EMBED, "") for text in (query, *documents))
        lines = [
            f"I will provide you with {len(documents)} passages, each indicated by a numerical identifier. "
            f"Rank the passages based on their relevance to query: {query}"
        ]
        if instruction:
            lines.append(f"<instruct>\n{instruction}\n</instruct>")
        for index, document in enumerate(documents):
            lines.append(f'<passage id="{index}">\n{document}{EMBED}\n</passage>')
        lines.append(f"<query>\n{query}{RERANK}\n</query>")
        return (
            f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n" + "\n".join(lines) + "<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )

    def compute(self, query: str, documents: list[str], instruction: str) -> tuple[FloatArray, FloatArray]:
        """The vectors of the query, (1, 512), and of the documents, (documents, 512)."""
        ids = self.tokenizer.encode(self.prompt(query, documents, instruction))
        marks = [self.tokenizer.convert_tokens_to_ids(mark) for mark in (RERANK, EMBED)]
        places = [place for mark in marks for place, token in enumerate(ids) if token == mark]
        hidden = read_hidden(self.model, ids, places)
        vectors = np.maximum(hidden @ self.projector[0].T, 0) @ self.projector[1].T
        return vectors[:1], vectors[1:]

    def scores(
        self, query: str, documents: list[str], instruction: str = "", *, longest: int = LONGEST
    ) -> list[float]:
        """What the program gives the documents, in their order, for a model that reads `longest` tokens."""
        query, length = self.cut(query, 512)
        blocks: list[list[str]] = [[]]
        room = longest - 2 * length
        for document in documents:
            text, count = self.cut(document, 2048)
            blocks[-1].append(text)
            room -= count
            if len(blocks[-1]) >= 125 or room <= 2048:
                blocks.append([])
                room = longest - 2 * length
        found = [self.compute(query, block, instruction) for block in blocks if block]
        weights = [float(((1 + cosine(documents, query)) / 2).max()) for query, documents in found]
        together = sum(weight * query for weight, (query, _) in zip(weights, found, strict=True)) / sum(
            weights
        )
        row = np.asarray(together, np.float32)
        return [float(score) for _, vectors in found for score in cosine(vectors, row)]

    def describe(self) -> ModelDescription:
        return describe_model(locate_model(self.folder))


def cosine(rows: FloatArray, row: FloatArray) -> FloatArray:
    """The cosines of rows and one row, (1, dim)."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(row)
    found: FloatArray = (rows @ row[0]) / lengths
    return found


def save(folder: Path) -> Saved:
    model, tokenizer = save_causal(
        folder, marks=(EMBED, RERANK), vocab_size=705, max_position_embeddings=LONGEST
    )
    edit_json(folder / "tokenizer_config.json", model_max_length=LONGEST)
    code = {"AutoModel": "modeling.JinaForRanking"}
    edit_json(folder / "config.json", architectures=["JinaForRanking"], auto_map=code)
    random = np.random.default_rng(7)
    first, second = (random.normal(0, 0.2, shape).astype(np.float32) for shape in ((16, 32), (512, 16)))
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    tensors |= {"projector.0.weight": first, "projector.2.weight": second}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return Saved(model, (first, second), tokenizer, folder)


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory, open_mill: Open) -> tuple[Saved, SyncMill]:
    saved = save(tmp_path_factory.mktemp("lists") / "ranker")
    return saved, open_mill(saved.describe())


def test_its_class_makes_it_a_reranker(ranker: tuple[Saved, SyncMill]) -> None:
    description = ranker[0].describe()
    assert description.task is Task.RERANK
    assert not description.encoder.is_in_transformers
    with pytest.raises(UnsupportedModel, match="the task embed was requested"):
        describe_model(locate_model(ranker[0].folder), Task.EMBED)
    with pytest.raises(UnsupportedTask, match="ranks documents; it cannot classify"):
        ranker[1].classify([("a", "b")])


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_scores_are_those_of_the_program(query: str, ranker: tuple[Saved, SyncMill]) -> None:
    saved, mill = ranker
    expected = saved.scores(query, DOCUMENTS)
    np.testing.assert_allclose(mill.rerank(query, DOCUMENTS).scores, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.05


def test_many_and_long_documents_make_several_blocks(ranker: tuple[Saved, SyncMill]) -> None:
    saved, mill = ranker
    truncated = []
    for documents in (
        [f"{word} {index}" for index, word in enumerate(["the", "one", "of", "it"] * 33)],  # 132
        ["of it " * 700, "the one " * 1_500, *DOCUMENTS, "which " * 600, "the one " * 300],
    ):
        found = mill.rerank("which one", documents)
        np.testing.assert_allclose(found.scores, saved.scores("which one", documents), atol=TOLERANCE)
        truncated.append(found.truncated_count)
        whole = saved.scores("which one", documents, longest=10**6)
        assert len(documents) > 125 or np.abs(np.subtract(found.scores, whole)).max() > 1e-3
    assert truncated == [0, 1]  # the input with the second document


@pytest.mark.promise("truncation-told")
def test_what_a_query_loses_is_told_once_however_many_lists_have_it(ranker: tuple[Saved, SyncMill]) -> None:
    _, mill = ranker
    of_one, of_two = (mill.rerank("of " * 600, ["x"] * count).truncated for count in (1, 126))
    assert (len(of_one), of_one[0].index) == (1, 1)
    assert of_two == (replace(of_one[0], index=126),)


@pytest.mark.promise("same-in-any-batch")
def test_a_score_depends_on_the_list_and_on_no_other_request(ranker: tuple[Saved, SyncMill]) -> None:
    _, mill = ranker
    alone, together = mill.rerank("which one", ["the one"]), mill.rerank("which one", ["the one", *DOCUMENTS])
    assert abs(alone.scores[0] - together.scores[0]) > 1e-3
    requests = [Rerank((query,), tuple(DOCUMENTS[:count])) for count in (1, 3, 9) for query in QUERIES[:3]]
    expected = [mill.run(request).scores for request in requests]
    with ThreadPoolExecutor(len(requests)) as pool:
        for found, wanted in zip(pool.map(mill.run, requests), expected, strict=True):
            np.testing.assert_allclose(found.scores, wanted, atol=1e-6)


def test_an_instruction_goes_where_the_program_puts_it(ranker: tuple[Saved, SyncMill]) -> None:
    saved, mill = ranker
    found = mill.rerank("which one", DOCUMENTS, instruction="is it about the {query}").scores
    expected = saved.scores("which one", DOCUMENTS, "is it about the {query}")
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.abs(np.subtract(found, saved.scores("which one", DOCUMENTS))).max() > 1e-3


def test_one_query_has_all_documents(ranker: tuple[Saved, SyncMill]) -> None:
    _, mill = ranker
    plain, raw = (mill.rerank("which one", DOCUMENTS, raw_scores=is_raw).scores for is_raw in (False, True))
    np.testing.assert_allclose(raw, plain, atol=TOLERANCE)
    same = mill.rerank(["which one"] * 2, DOCUMENTS[:2]).scores
    np.testing.assert_array_equal(same, mill.rerank("which one", DOCUMENTS[:2]).scores)
    with pytest.raises(InvalidRequest, match="documents of one query together"):
        mill.rerank(["which one", "another"], DOCUMENTS[:2])


def test_a_request_limits_each_of_its_texts(ranker: tuple[Saved, SyncMill]) -> None:
    saved, mill = ranker
    documents = ["of it " * 9, "x", f"<|im_end|> {'the one ' * 9}"]
    cut = [saved.cut(document, 5)[0] for document in documents]
    for options in (TextOptions(truncation=Truncation(max_tokens=5)), TextOptions(document_tokens=5)):
        found = mill.rerank("of it", documents, options=options)
        np.testing.assert_allclose(found.scores, saved.scores("of it", cut), atol=TOLERANCE)
        assert [each.index for each in found.truncated] == [0, 2]
    options = TextOptions(truncation=Truncation(max_tokens=2, keeps_end=True))
    found = mill.rerank("which one of it", ["the one of it"], options=options)
    np.testing.assert_allclose(found.scores, saved.scores(" of it", [" of it"]), atol=TOLERANCE)
    for query, documents in (("x", ["of " * 3_000]), ("of " * 600, ["x"])):
        with pytest.raises(InputTooLong):
            mill.rerank(query, documents, options=TextOptions(truncation=Truncation(is_allowed=False)))


def test_marks_in_texts_are_no_marks(ranker: tuple[Saved, SyncMill]) -> None:
    _, mill = ranker
    hidden = RERANK.replace("rank", f"ra{EMBED}nk"), EMBED.replace("embed", f"em{RERANK}bed")
    found = mill.rerank(
        hidden[0], [*hidden, f"{RERANK}{EMBED}" * 50, "x"], instruction=f"{EMBED} {hidden[0]}"
    )
    assert np.isfinite(found.scores).all()
    assert len(found.scores) == 4


@pytest.mark.parametrize("engine", in_part(["openvino", "torch"], "torch"))
def test_other_engines_give_the_same(engine: str, ranker: tuple[Saved, SyncMill], tmp_path: Path) -> None:
    if not ENGINES[engine].is_installed:
        pytest.skip(f"{engine} is not installed")
    with SyncMill(ranker[0].describe(), MillConfig(engine=engine, cache_dir=tmp_path)) as mill:
        found = mill.rerank("which one", DOCUMENTS).scores
    np.testing.assert_allclose(found, ranker[0].scores("which one", DOCUMENTS), atol=TOLERANCE)


def test_a_check_compares_lists_of_one_document(ranker: tuple[Saved, SyncMill], tmp_path: Path) -> None:
    saved, _ = ranker
    description = saved.describe()
    stored = store_outputs(load_reference(description, tmp_path), description, mixed_texts(3, 9))
    for item, scores in zip(stored.inputs, stored.outputs, strict=True):
        expected = saved.scores(item.text, [item.second or ""])
        np.testing.assert_allclose(np.asarray(scores).ravel(), expected, atol=TOLERANCE)


def test_models_that_no_rule_covers_are_refused(tmp_path: Path) -> None:
    saved = save(tmp_path / "ranker")
    edit_json(saved.folder / "config.json", use_sliding_window=True)
    with pytest.raises(UnsupportedModel, match=r"sliding window, such as jina-reranker-v3\.5"):
        saved.describe()
    edit_json(saved.folder / "config.json", use_sliding_window=False, max_position_embeddings=3_000)
    description = saved.describe()
    with pytest.raises(UnsupportedModel, match="reads 3000 tokens"):
        ListwiseTokenizer(Tokenizer.load(description), description)
    edit_json(saved.folder / "config.json", max_position_embeddings=LONGEST, vocab_size=701)
    description = saved.describe()
    with pytest.raises(UnsupportedModel, match=r"no token '<\|rerank_token\|>' below vocab_size"):
        ListwiseTokenizer(Tokenizer.load(description), description)


def test_a_list_never_exceeds_what_the_model_reads(ranker: tuple[Saved, SyncMill]) -> None:
    saved, _ = ranker
    description = saved.describe()
    lists = ListwiseTokenizer(Tokenizer.load(description), description)
    documents = ["of it " * 1_300, "", *["of it " * count for count in range(700, 1_000, 25)]]
    sequences = complete(lists.encode_in_slices("which one", documents))
    assert max(map(len, sequences)) <= LONGEST
    with pytest.raises(InputTooLong):
        complete(lists.encode_in_slices("x", ["y"], instruction="one " * 7_000))
