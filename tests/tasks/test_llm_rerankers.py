"""Language models that were published as rerankers score as their publishers' programs do.

The programs are written down here as their packages put token ids together: each part is tokenised by itself.
"""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.published import edit_json
from support.references import Reference
from support.task_models import (
    LONGEST_PROSE,
    PlainTokenizer,
    read_hidden,
    read_logits,
    save_causal,
    save_layerwise,
)
from tasks.conftest import PAIRS, Open
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES
from vecmill.errors import InputTooLong, InvalidRequest, UnsupportedModel
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.models.heads import Activation
from vecmill.quantization.calibration import calibration_sequences
from vecmill.requests import Truncation
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.verification.reference import load_reference, store_outputs

TOLERANCE = 1e-4
GEMMA_PROMPT = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by "
    "providing a prediction of either 'Yes' or 'No'."
)
MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each "
    "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
    "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
)
MXBAI_START = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n"
)
LONGER = 700  # of all models here, whose prompts alone have up to 220 pieces of a small vocabulary
# A long query and a short document, the other way round, both long, and a text that white space begins.
LONG_PAIRS = [
    ("one " * 900, "x"),
    ("x", "of it " * 400),
    ("one " * 300, "of it " * 400),
    (" " * 1990 + "which one is it", "x" + " y" * 5_000),
]


@dataclass(frozen=True, slots=True)
class Program:
    """A publisher's program: parts of an input, the answers, and the divisor of the logit."""

    stem: str  # of its class in transformers, if there is one
    answers: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    divisor: float = 1.0


PROGRAMS: dict[str, Program] = {
    "bge-reranker-v2-gemma": Program("Gemma", ("Yes",), {"bos_token": "<|im_start|>"}),
    "bge-reranker-v2-minicpm-layerwise": Program("", (), {"bos_token": "<|im_start|>"}),
    "mxbai-rerank-base-v2": Program("Qwen2", ("1", "0"), {"head_dim": 8}),
    "zerank-1": Program("Qwen3", ("Yes",), divisor=5.0),
}


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved model, its tokenizer, and the program that scores with them."""

    name: str
    model: Reference
    tokenizer: PlainTokenizer
    folder: Path

    def encode(self, *parts: str) -> list[int]:
        return [one for part in parts for one in self.tokenizer.encode(part)]

    def ids(self, query: str, document: str, instruction: str = "", *, longest: int = LONGER) -> list[int]:
        """What the program reads for a pair, if the model reads `longest` tokens."""
        if self.name == "zerank-1":
            before = self.encode("<|im_start|>system\n")
            after = self.encode("<|im_end|>\n<|im_start|>assistant\n")
            query, document = query[:2_000].strip(), document[:10_000].strip()
            body = self.encode(f"{query}<|im_end|>\n<|im_start|>user\n{document}")
            return [*before, *body[: longest - len(before) - len(after)], *after]
        if self.name.startswith("bge-reranker"):
            return self._bge_ids(query, document, instruction, longest)
        return self._mxbai_ids(query, document, instruction, longest)

    def _bge_ids(self, query: str, document: str, instruction: str, longest: int) -> list[int]:
        """The program on the model cards, whose `max_length` leaves room for what it adds."""
        end = self.encode("\n", instruction or GEMMA_PROMPT)
        most = min(1024, longest - len(end))
        first = [self.tokenizer.bos_token_id or 0, *self.encode(f"A: {query}")[: most * 3 // 4]]
        second = [*self.encode("\n"), *self.encode(f"B: {document}")[:most]]
        return [*first, *second[: most - len(first)], *end]

    def _mxbai_ids(self, query: str, document: str, instruction: str, longest: int) -> list[int]:
        start = self.encode(MXBAI_START)
        end = self.encode("\n", MXBAI_TASK, "<|im_end|>\n<|im_start|>assistant\n")
        most = min(8192, longest - len(start) - len(end))
        asked = f"instruction: {instruction}\n" if instruction else ""
        first = self.encode(f"{asked}query: {query}")[: most * 3 // 4]
        second = [*self.encode("\n"), *self.encode(f"document: {document}")]
        return [*start, *first, *second[: most - len(first)], *end]

    def logit(self, query: str, document: str, instruction: str = "") -> float:
        answers = [self.tokenizer.convert_tokens_to_ids(word) for word in PROGRAMS[self.name].answers]
        found = read_logits(self.model, self.ids(query, document, instruction), answers or None)
        return float(found[0] - sum(found[1:])) if answers else float(found[0])

    def describe(self) -> ModelDescription:
        return describe_model(locate_model(self.folder))


def save(folder: Path, name: str) -> Saved:
    program = PROGRAMS[name]
    if program.stem:
        model, tokenizer = save_causal(folder, program.stem, **program.settings)
    else:
        model, tokenizer = save_layerwise(folder, **program.settings)
    edit_json(folder / "tokenizer_config.json", model_max_length=LONGER)
    return Saved(name, model, tokenizer, folder)


@pytest.fixture(scope="module", params=PROGRAMS)
def judge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, open_mill: Open
) -> tuple[Saved, SyncMill]:
    saved = save(tmp_path_factory.mktemp("judges") / request.param, request.param)
    return saved, open_mill(saved.describe())


def test_the_name_of_the_directory_makes_it_a_reranker(judge: tuple[Saved, SyncMill]) -> None:
    assert judge[0].describe().task is Task.RERANK


def test_scores_are_those_of_the_program(judge: tuple[Saved, SyncMill]) -> None:
    saved, mill = judge
    pairs = [*PAIRS, ("{document}", "{query} {instruction}"), (" spaced ", "\n too "), *LONG_PAIRS]
    logits = np.array([saved.logit(*pair) for pair in pairs])
    found = [mill.rerank(query, [document], raw_scores=True).scores[0] for query, document in pairs]
    np.testing.assert_allclose(found, logits, atol=TOLERANCE)
    expected = 1 / (1 + np.exp(-logits / PROGRAMS[saved.name].divisor))
    found = [mill.rerank(query, [document]).scores[0] for query, document in pairs]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.05
    lengths = [len(saved.ids(*pair)) for pair in pairs]
    assert max(lengths) == LONGER > min(lengths)


def test_documents_share_a_batch(judge: tuple[Saved, SyncMill]) -> None:
    saved, mill = judge
    documents = [document for _, document in PAIRS]
    found = mill.rerank("which one", documents, raw_scores=True).scores
    expected = [saved.logit("which one", document) for document in documents]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_an_instruction_goes_where_the_program_puts_it(judge: tuple[Saved, SyncMill]) -> None:
    saved, mill = judge
    query, document = PAIRS[-1]
    if saved.name == "zerank-1":
        with pytest.raises(InvalidRequest, match="takes no instruction"):
            mill.rerank(query, [document], instruction="is it about the same")
        return
    for instruction in ("is it about the same", "{query}"):
        found = mill.rerank(query, [document], instruction=instruction, raw_scores=True).scores[0]
        assert found == pytest.approx(saved.logit(query, document, instruction), abs=TOLERANCE)
        assert abs(found - saved.logit(query, document)) > 1e-3


def test_the_reference_of_a_check_is_the_program(judge: tuple[Saved, SyncMill], tmp_path: Path) -> None:
    saved, _ = judge
    description = saved.describe()
    texts = [query for query, _ in PAIRS if query]
    stored = store_outputs(load_reference(description, tmp_path), description, texts)
    for item, scores in zip(stored.inputs, stored.outputs, strict=True):
        logit = saved.logit(item.text, item.second or "") / PROGRAMS[saved.name].divisor
        assert float(np.asarray(scores).ravel()[0]) == pytest.approx(1 / (1 + np.exp(-logit)), abs=TOLERANCE)


@pytest.mark.parametrize("engine", ["openvino", "torch"])
def test_other_engines_score_a_layerwise_reranker(engine: str, tmp_path: Path) -> None:
    if not ENGINES[engine].is_installed:
        pytest.skip(f"{engine} is not installed")
    saved = save(tmp_path / "reranker", "bge-reranker-v2-minicpm-layerwise")
    expected = [saved.logit(*pair) for pair in PAIRS]
    with SyncMill(saved.describe(), MillConfig(engine=engine, cache_dir=tmp_path)) as mill:
        queries, documents = [query for query, _ in PAIRS], [document for _, document in PAIRS]
        found = mill.rerank(queries, documents, raw_scores=True).scores
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_texts_are_truncated_where_the_program_does(name: str, tmp_path: Path) -> None:
    saved = save(tmp_path / name, name)
    for file, key in (("config", "max_position_embeddings"), ("tokenizer_config", "model_max_length")):
        edit_json(saved.folder / f"{file}.json", **{key: 32_768})
    description = saved.describe()
    pairs = PairTokenizer(Tokenizer.load(description), description)
    long = [
        ("one " * 9_000, "x"),
        ("x", "of it " * 9_000),
        ("one " * 800, "y"),
        ("one " * 9_000, "of " * 9_000),
    ]
    sequences = complete(pairs.encode_in_slices([*PAIRS, *long]))
    for pair, sequence in zip([*PAIRS, *long], sequences, strict=True):
        assert sequence.token_ids.tolist() == saved.ids(*pair, longest=32_768)
    assert any(sequence.is_truncated for sequence in sequences)
    with pytest.raises(InputTooLong):
        complete(pairs.encode_in_slices([("one " * 33_000, "x")], truncation=Truncation(is_allowed=False)))


# The class of a layerwise reranker says what it is.
@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.answers])
def test_a_model_is_known_by_the_name_of_its_original(name: str, tmp_path: Path) -> None:
    saved = save(tmp_path / "mine", name)
    if PROGRAMS[name].stem != "Qwen3":
        with pytest.raises(UnsupportedModel, match=f"is supported too: .*{name}"):
            describe_model(locate_model(saved.folder), Task.RERANK)
    edit_json(saved.folder / "config.json", _name_or_path=f"owner/{name}")
    assert saved.describe().task is Task.RERANK
    assert describe_model(locate_model(saved.folder), Task.EMBED).task is Task.EMBED


def test_a_layerwise_reranker_is_known_by_its_class(tmp_path: Path) -> None:
    saved = save(tmp_path / "mine", "bge-reranker-v2-minicpm-layerwise")
    assert saved.describe().task is Task.RERANK
    assert saved.describe().max_tokens == LONGER


@pytest.mark.parametrize(
    ("name", "begins"), [("bge-reranker-v2-gemma", False), ("bge-reranker-v2-minicpm-layerwise", True)]
)
def test_a_padding_token_begins_a_layerwise_input_alone(name: str, begins: bool, tmp_path: Path) -> None:
    saved = save(tmp_path / name, name)
    edit_json(saved.folder / "tokenizer_config.json", bos_token="<|endoftext|>")
    description = saved.describe()
    pairs = PairTokenizer(Tokenizer.load(description), description)
    (sequence,) = complete(pairs.encode_in_slices([("the", "x")]))
    padding = saved.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert (sequence.token_ids.tolist()[0] == padding) is begins


def test_zerank_is_known_by_its_code(tmp_path: Path) -> None:
    saved = save(tmp_path / "mine", "zerank-1")
    edit_json(saved.folder / "config.json", auto_map={"AutoConfig": "modeling_zeranker.ZEConfig"})
    head = saved.describe().head
    assert head is not None
    assert head.activation is Activation.SIGMOID_OF_FIFTH


def test_a_reranker_of_nvidia_reads_question_and_passage(tmp_path: Path, open_mill: Open) -> None:
    folder = tmp_path / "reranker"
    model, tokenizer = save_causal(folder, "Llama", bos_token="<|im_start|>", is_causal=False)
    edit_json(folder / "tokenizer_config.json", model_max_length=LONGER, chat_template="{{ messages }}")
    edit_json(
        folder / "config.json",
        model_type="llama_bidirec",
        architectures=["LlamaBidirectionalForSequenceClassification"],
        auto_map={"AutoConfig": "llama_bidirectional_model.LlamaBidirectionalConfig"},
        id2label={"0": "LABEL_0"},
        pooling="avg",
        temperature=0.5,
        is_causal=None,
    )
    head = np.random.default_rng(1).standard_normal((1, 32)).astype(np.float32)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors") | {"score.weight": head}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    def logit(query: str, document: str) -> float:
        text = f"question:{query} \n \n passage:{document}"
        ids = [tokenizer.bos_token_id or 0, *tokenizer.encode(text)][:LONGER]
        return float(read_hidden(model, ids) @ head[0] / 0.5)

    mill = open_mill(describe_model(locate_model(folder)))
    pairs = [*PAIRS, *LONG_PAIRS, ("{document}", "{query} <|im_end|>")]
    found = [mill.rerank(query, [document], raw_scores=True).scores[0] for query, document in pairs]
    np.testing.assert_allclose(found, [logit(*pair) for pair in pairs], atol=TOLERANCE)
    assert np.ptp(found) > 0.05
    with pytest.raises(InvalidRequest, match="takes no instruction"):
        mill.rerank("a", ["b"], instruction="is it about the same")


def test_int8_is_calibrated_with_texts_that_have_tokens(tmp_path: Path) -> None:
    description = save(tmp_path / "zerank-1", "zerank-1").describe()
    with pytest.raises(InvalidRequest, match="has no tokens"):
        Tokenizer.load(description).encode([""])
    sequences = calibration_sequences(description)
    assert len(sequences) > 30
    assert all(map(len, sequences))


def test_a_tokenizer_without_the_answer_is_refused(tmp_path: Path) -> None:
    saved = save(tmp_path / "zerank-1", "zerank-1")
    shutil.copytree(saved.folder, tmp_path / "copy" / "zerank-1")
    file = tmp_path / "copy" / "zerank-1" / "tokenizer.json"
    document = json.loads(file.read_text())
    document["model"]["vocab"]["Yess"] = document["model"]["vocab"].pop("Yes")
    document["model"]["merges"] = [one for one in document["model"]["merges"] if "".join(one) != "Yes"]
    file.write_text(json.dumps(document))
    with pytest.raises(UnsupportedModel, match="has no token 'Yes' below vocab_size"):
        describe_model(locate_model(file.parent))


def test_an_instruction_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    description = save(tmp_path / "bge-reranker-v2-gemma", "bge-reranker-v2-gemma").describe()
    pairs = PairTokenizer(Tokenizer.load(description), description)
    with pytest.raises(InputTooLong):
        complete(pairs.encode_in_slices([("a", "b")], prompt="one " * 1000))
    truncation = Truncation(max_tokens=LONGEST_PROSE)
    (sequence,) = complete(pairs.encode_in_slices([("a", "b " * 900)], truncation=truncation))
    assert len(sequence) == LONGEST_PROSE
