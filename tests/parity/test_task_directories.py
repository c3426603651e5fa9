"""What a directory of each task asks for is what its reference makes of it: from files to answers.

The reference is the class that wrote the directory, or one that is documented to read it:
`CrossEncoder`, `SparseEncoder`, `MultiVectorEncoder`, `SentenceTransformer` or a transformers pipeline.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import quiet_library, save_tiny_family
from support.published import edit_json
from support.reference import load_library_model, load_reference
from support.references import answer, digest_directory
from support.scales import in_turns
from support.task_models import save_again, save_modules, save_splade
from support.texts import hard_texts, mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import SyncMill
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel, UnsupportedTask
from vecmill.graphs.batch_layout import Layout
from vecmill.models import Task, locate_model
from vecmill.models.heads import Activation, HeadKind
from vecmill.requests import EmbedSparse, EmbedTokens, Purpose, TextOptions
from vecmill.values.aliases import FloatArray

SEED = 5
TEXTS = [*mixed_texts(SEED, 8), *hard_texts()[:6]]
FEW = [*TEXTS[:3], *TEXTS[-3:]]  # of which each token has a row
PAIRS = [(TEXTS[index], TEXTS[-1 - index]) for index in range(len(TEXTS))]
TOLERANCE = 1e-4
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
ACTIVATION = "torch.nn.modules.activation."
IDENTITY = "torch.nn.modules.linear.Identity"


def save_model(directory: Path, class_name: str, **settings: Any) -> Path:
    """A plain transformers directory: a tiny model of that class and a tokenizer."""
    save_tiny_bert(directory, TinyBert())
    vocab_size = json.loads((directory / "config.json").read_text())["vocab_size"]
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (directory / name).unlink()
    shutil.rmtree(directory / "1_Pooling")
    save_tiny_family(directory, class_name, seed=SEED, **{**SIZES, "vocab_size": vocab_size, **settings})
    return directory


@contextmanager
def open_mill(directory: Path, task: Task | None = None) -> Iterator[SyncMill]:
    config = MillConfig(cache_dir=directory.parent / "prepared")
    mill = SyncMill(describe_model(locate_model(directory), task), config)
    try:
        yield mill
    finally:
        mill.close()


def assert_close(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) < TOLERANCE


# Rerankers


def score_with_mill(directory: Path, task: Task | None = None) -> FloatArray:
    with open_mill(directory, task) as mill:
        scores = [mill.rerank(query, [document]).scores[0] for query, document in PAIRS]
    return np.array(scores, np.float32)


def save_over(directory: Path, **options: Any) -> None:
    """Let the reference save a reranker where it is."""
    saved = directory.with_name("saved")
    save_again(saved, directory, "CrossEncoder", **options)
    shutil.copytree(saved, directory, dirs_exist_ok=True)


RERANKERS: dict[str, Callable[[Path], None]] = {
    "plain": lambda directory: None,
    "identity": lambda directory: edit_json(
        directory / "config.json", sentence_transformers={"activation_fn": IDENTITY}
    ),
    "old_identity": lambda directory: edit_json(
        directory / "config.json", sbert_ce_default_activation_function=IDENTITY
    ),
    "sigmoid": lambda directory: edit_json(
        directory / "config.json", sentence_transformers={"activation_fn": ACTIVATION + "Sigmoid"}
    ),
    "foreign_activation": lambda directory: edit_json(
        directory / "config.json", sentence_transformers={"activation_fn": "model.Own"}
    ),
    "saved_again": lambda directory: save_over(directory),
    "saved_with_prompts": lambda directory: save_over(
        directory, prompts={"query": "find: "}, default_prompt_name="query"
    ),
}


@pytest.mark.parametrize("name", RERANKERS)
def test_rerankers(name: str, tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model", "BertForSequenceClassification", num_labels=1)
    RERANKERS[name](directory)
    description = describe_model(locate_model(directory))
    assert (description.task, description.dim) == (Task.RERANK, 1)
    expected = load_reference(directory, "CrossEncoder").predict(PAIRS)
    assert_close(score_with_mill(directory), expected)


def test_activations_that_are_not_done_are_named(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model", "BertForSequenceClassification", num_labels=1)
    edit_json(directory / "config.json", sentence_transformers={"activation_fn": ACTIVATION + "Tanh"})
    with pytest.raises(UnsupportedModel, match=r"activation_fn .*Tanh' is not supported"):
        describe_model(locate_model(directory))


@pytest.mark.parametrize(("false_token", "activation"), in_turns([None, 7], [None, IDENTITY]))
def test_causal_rerankers(tmp_path: Path, false_token: int | None, activation: str | None) -> None:
    directory = save_model(
        tmp_path / "model", "Qwen3ForCausalLM", num_key_value_heads=2, head_dim=8, tie_word_embeddings=True
    )
    edit_json(directory / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1",
            "type": "sentence_transformers.cross_encoder.modules.LogitScore",
        },
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    edit_json(directory / "sentence_bert_config.json", transformer_task="text-generation")
    (directory / "1").mkdir()
    edit_json(directory / "1/config.json", true_token_id=6, false_token_id=false_token)
    settings = {} if activation is None else {"activation_fn": activation}
    edit_json(directory / "config_sentence_transformers.json", model_type="CrossEncoder", **settings)
    assert_close(score_with_mill(directory), load_reference(directory, "CrossEncoder").predict(PAIRS))


def test_a_plain_causal_model_reranks_when_asked(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model", "Qwen3ForCausalLM", num_key_value_heads=2, head_dim=8)
    with pytest.raises(UnsupportedModel, match="has no token 'yes'"):
        describe_model(locate_model(directory), Task.RERANK)
    document = json.loads((directory / "tokenizer.json").read_text())
    document["model"]["vocab"] |= {"yes": 11, "no": 12}
    (directory / "tokenizer.json").write_text(json.dumps(document))
    head = describe_model(locate_model(directory), Task.RERANK).head
    assert head is not None
    assert (head.kind, head.activation, head.token_ids) == (HeadKind.YES_NO, Activation.SIGMOID, (11, 12))


# Classifiers


@pytest.mark.parametrize("problem", [None, "single_label_classification", "multi_label_classification"])
def test_classifiers(tmp_path: Path, problem: str | None) -> None:
    labels = {0: "joy", 1: "anger", 2: "fear"}
    directory = save_model(
        tmp_path / "model", "BertForSequenceClassification", id2label=labels, problem_type=problem
    )
    description = describe_model(locate_model(directory))
    assert description.head is not None
    assert (description.task, description.head.labels) == (Task.CLASSIFY, ("joy", "anger", "fear"))

    def classify() -> list[dict[str, float]]:
        with quiet_library():
            import transformers

            pipeline = transformers.pipeline(
                "text-classification", str(directory), top_k=None, dtype="float32"
            )
            found = pipeline(TEXTS, truncation=True, max_length=description.max_tokens)
        return [{item["label"]: item["score"] for item in scores} for scores in found]

    answers = answer(["classify", digest_directory(directory), TEXTS], classify)
    expected = [[scores[label] for label in labels.values()] for scores in answers]
    with open_mill(directory) as mill:
        assert_close(mill.classify(TEXTS).scores, expected)


@pytest.mark.filterwarnings("ignore:Implicit dimension choice for softmax")  # CrossEncoder's own
@pytest.mark.parametrize(
    ("written", "activation", "is_chosen"),
    [
        (IDENTITY, Activation.SOFTMAX, False),  # which CrossEncoder writes if nobody chose
        (ACTIVATION + "Sigmoid", Activation.SIGMOID, True),
        (ACTIVATION + "Softmax", Activation.SOFTMAX, True),
        ("model.Own", Activation.SOFTMAX, False),
    ],
)
def test_a_cross_encoder_of_several_labels_has_its_own_activation(
    tmp_path: Path, written: str, activation: Activation, is_chosen: bool
) -> None:
    directory = save_model(tmp_path / "model", "BertForSequenceClassification", num_labels=3)
    edit_json(directory / "config.json", sentence_transformers={"activation_fn": written})
    head = describe_model(locate_model(directory)).head
    assert head is not None
    assert head.activation == activation
    expected = load_reference(directory, "CrossEncoder").predict(PAIRS)
    with open_mill(directory) as mill:
        assert_close(mill.classify(PAIRS, raw_scores=not is_chosen).scores, expected)
        with pytest.raises(UnsupportedTask, match="classifies texts; it cannot rank documents"):
            mill.rerank("a query", ["a document"])


def test_a_classifier_of_one_label_classifies_when_asked(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model", "BertForSequenceClassification", num_labels=1)
    for problem, activation in ((None, Activation.SIGMOID), ("regression", Activation.IDENTITY)):
        edit_json(directory / "config.json", problem_type=problem)
        head = describe_model(locate_model(directory), Task.CLASSIFY).head
        assert head is not None
        assert (head.labels, head.activation) == (("LABEL_0",), activation)


def test_token_classifiers(tmp_path: Path) -> None:
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    directory = save_model(tmp_path / "model", "BertForTokenClassification", id2label=labels)
    description = describe_model(locate_model(directory))
    assert description.head is not None
    assert (description.task, description.dim) == (Task.CLASSIFY_TOKENS, 3)
    assert (description.head.kind, description.head.labels) == (HeadKind.TOKENS, ("O", "B-PER", "I-PER"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "without gaps"),
        ({"id2label": {"zero": "a"}}, "by number"),
        ({"id2label": None, "num_labels": 0}, "num_labels must be"),
    ],
)
def test_labels_that_cannot_be_are_named(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    directory = save_model(tmp_path / "model", "BertForSequenceClassification", num_labels=2)
    edit_json(directory / "config.json", **values)
    with pytest.raises(CorruptModel, match=message):
        describe_model(locate_model(directory))


# Sparse


def sparse_rows(directory: Path, task: Task | None = None) -> FloatArray:
    with open_mill(directory, task) as mill:
        result = mill.run(EmbedSparse(tuple(TEXTS)))
    dim = describe_model(locate_model(directory), task).dim
    rows = np.zeros((len(TEXTS), dim), np.float32)
    for row, found in zip(rows, result.embeddings, strict=True):
        row[found.columns] = found.values
    return rows


@pytest.mark.parametrize(("strategy", "activation"), in_turns(["max", "sum"], ["relu", "log1p_relu"]))
def test_sparse_models(tmp_path: Path, strategy: str, activation: str) -> None:
    directory = save_model(tmp_path / "model", "BertForMaskedLM")
    reference = save_splade(
        tmp_path / "saved", directory, pooling_strategy=strategy, activation_function=activation
    )
    expected = reference.encode(TEXTS, convert_to_sparse_tensor=False)
    assert_close(sparse_rows(tmp_path / "saved"), expected)


def test_a_sparse_model_that_is_not_compared_by_dot_product_is_refused(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model", "BertForMaskedLM")
    save_again(tmp_path / "saved", directory, "SparseEncoder", similarity_fn_name="cosine")
    with pytest.raises(UnsupportedModel, match="similarity_fn_name 'cosine' is not supported"):
        describe_model(locate_model(tmp_path / "saved"))


def test_a_masked_language_model_is_sparse_when_asked(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model", "BertForMaskedLM")
    expected = load_reference(directory, "SparseEncoder").encode(TEXTS, convert_to_sparse_tensor=False)
    assert_close(sparse_rows(directory, Task.SPARSE), expected)
    assert describe_model(locate_model(directory)).task is Task.EMBED


# Multi-vector


def save_multi_vector(directory: Path, target: Path, **settings: Any) -> Path:
    """Saved by the reference, with `settings` of its Transformer."""

    def make() -> list[Any]:
        from sentence_transformers.base.modules import Dense, Normalize, Transformer
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
        from torch import nn

        of_transformer = dict(settings)
        skipped = of_transformer.pop("skipped", ["the", ",", "no such token"])
        tasks = of_transformer.pop("skiplist_tasks", None)
        tokens = "token_embeddings"
        return [
            Transformer(str(directory), **of_transformer),
            Dense(32, 16, bias=False, activation_function=nn.Identity(), module_input_name=tokens),
            MultiVectorMask(skipped, skiplist_tasks=tasks),
            Normalize(module_input_name=tokens),
        ]

    prompts = {"query": "[Q] ", "document": "about: "}
    save_modules(target, "MultiVectorEncoder", settings, make, {"": directory}, prompts=prompts)
    return target


def assert_same_multi_vectors(directory: Path) -> None:
    reference = load_reference(directory, "MultiVectorEncoder")
    with open_mill(directory) as mill:
        for side, encode in (
            (Purpose.QUERY, reference.encode_query),
            (Purpose.DOCUMENT, reference.encode_document),
        ):
            expected = encode(FEW, convert_to_numpy=True)
            found = mill.run(EmbedTokens(tuple(FEW), options=TextOptions(purpose=side))).embeddings
            assert len(found) == len(expected)
            for ours, theirs in zip(found, expected, strict=True):
                assert_close(ours, theirs)


EXPANSIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "lengths": {"query_length": 9, "document_length": 21},
    "fixed": {"query_expansion": {"strategy": "fixed", "length": 24}},
    "fixed_attended": {"query_expansion": {"strategy": "fixed", "length": 24, "attend": True}},
    "min": {"query_expansion": {"strategy": "min", "length": 16}, "query_length": 30},
    "own_token": {"query_expansion": {"strategy": "min", "length": 16, "token": "[PAD]"}},
    "nothing_skipped": {"skipped": []},
    "skipped_in_both": {"skiplist_tasks": ["query", "document"]},
    "skipped_in_queries": {"skiplist_tasks": "query"},
}


@pytest.mark.parametrize("name", EXPANSIONS)
def test_multi_vector_models(tmp_path: Path, name: str) -> None:
    directory = save_model(tmp_path / "model", "BertModel")
    saved = save_multi_vector(directory, tmp_path / "saved", **EXPANSIONS[name])
    description = describe_model(locate_model(saved))
    assert (description.task, description.dim, description.normalize) == (Task.MULTI_VECTOR, 16, True)
    assert_same_multi_vectors(saved)


def test_multi_vector_models_of_another_similarity_are_refused(tmp_path: Path) -> None:
    saved = save_multi_vector(save_model(tmp_path / "model", "BertModel"), tmp_path / "saved")
    edit_json(saved / "config_sentence_transformers.json", similarity_fn_name="meanmaxsim")
    with pytest.raises(UnsupportedModel, match="similarity_fn_name 'meanmaxsim' is not supported"):
        describe_model(locate_model(saved))


@pytest.mark.parametrize("similarity", [None, "cosine", "dot", "euclidean", "manhattan"])
def test_embedding_models_rank_by_the_similarity_that_they_name(
    tmp_path: Path, similarity: str | None
) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert(normalize=False))
    edit_json(directory / "config_sentence_transformers.json", similarity_fn_name=similarity)
    reference = load_reference(directory).float()
    query, *documents = TEXTS[:8]
    expected = reference.similarity(reference.encode([query]), reference.encode(documents))[0].numpy()
    with open_mill(directory) as mill:
        assert_close(mill.rerank(query, documents).scores, expected)


PYLATE: dict[str, dict[str, Any]] = {
    "usual": {"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 24, "document_length": 40},
    "attended": {"query_length": 20, "attend_to_expansion_tokens": True},
    "no_expansion": {"do_query_expansion": False, "query_length": 12},
    "own_words": {"skiplist_words": ["the"], "query_prefix": "[MASK] "},
}


CONVOLVING: dict[str, Any] = {
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "layer_types": ["conv", "full_attention", "conv", "conv"],
    "pad_token_id": 0,
    "block_multiple_of": 8,
}


@pytest.mark.parametrize("name", PYLATE)
def test_models_of_pylate(tmp_path: Path, name: str) -> None:
    make_pylate(save_model(tmp_path / "model", "BertModel"), name)
    assert_same_multi_vectors(tmp_path / "model")


@pytest.mark.parametrize(("name", "bias"), in_turns(PYLATE, [False, True]))
def test_models_of_pylate_with_convolutions(tmp_path: Path, name: str, bias: bool) -> None:
    """LFM2-ColBERT: a convolution must not reach from the expansion of a query into the query."""
    make_pylate(save_model(tmp_path / "model", "Lfm2Model", conv_bias=bias, **CONVOLVING), name)
    assert_same_multi_vectors(tmp_path / "model")


@pytest.mark.parametrize("name", PYLATE)
def test_models_of_pylate_with_convolutions_that_look_ahead(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LFM2.5-ColBERT by its published formulas, one text at a time: its code lets padding into texts."""
    directory = tmp_path / "model"
    make_pylate(save_model(directory, "ReferenceLfm2BidirectionalModel", **CONVOLVING), name)

    def compute() -> dict[str, list[FloatArray]]:
        from support.own_code_models import CentredConvolution

        monkeypatch.setattr(CentredConvolution, "hides_padding", False)
        reference = load_library_model(directory, "MultiVectorEncoder", {})
        encoders = {Purpose.QUERY: reference.encode_query, Purpose.DOCUMENT: reference.encode_document}
        return {
            str(side): [encode(text, convert_to_numpy=True) for text in FEW]
            for side, encode in encoders.items()
        }

    expected = answer(["looks ahead", digest_directory(directory), FEW], compute)
    code = {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"}
    edit_json(directory / "config.json", model_type="lfm2", is_causal=None, auto_map=code)
    with open_mill(directory) as mill:
        for side, rows in expected.items():
            options = TextOptions(purpose=Purpose(side))
            found = mill.run(EmbedTokens(tuple(FEW), options=options)).embeddings
            for ours, theirs in zip(found, rows, strict=True):
                assert_close(ours, theirs)


def test_expansion_that_convolutions_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pylate(save_model(tmp_path / "model", "Lfm2Model", **CONVOLVING), "usual")
    monkeypatch.setattr(Layout, "mark_seen", lambda self: None)
    with pytest.raises(AssertionError):
        assert_same_multi_vectors(tmp_path / "model")


def make_pylate(directory: Path, name: str) -> None:
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Dense").mkdir()
    edit_json(
        directory / "1_Dense/config.json",
        in_features=32,
        out_features=16,
        bias=False,
        activation_function=IDENTITY,
    )
    weight = np.random.default_rng(SEED).standard_normal((16, 32)).astype(np.float32)
    safetensors.numpy.save_file({"linear.weight": weight}, directory / "1_Dense/model.safetensors")
    edit_json(directory / "config_sentence_transformers.json", model_type="ColBERT", **PYLATE[name])


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"query_maxlen": 20, "doc_maxlen": 30, "mask_punctuation": False, "dim": 16},
        {"query_token_id": "[MASK]", "doc_token_id": "the", "attend_to_mask_tokens": True, "dim": 16},
    ],
)
def test_models_of_stanford(tmp_path: Path, metadata: dict[str, Any] | None) -> None:
    directory = save_model(tmp_path / "model", "BertModel")
    edit_json(directory / "config.json", architectures=["HF_ColBERT"])
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    dim = 128 if metadata is None else 16
    weight = np.random.default_rng(SEED).standard_normal((dim, 32)).astype(np.float32)
    named = {f"bert.{name}": value for name, value in tensors.items()}
    safetensors.numpy.save_file(
        {**named, "linear.weight": weight}, directory / "model.safetensors", {"format": "pt"}
    )
    if metadata is not None:
        edit_json(directory / "artifact.metadata", **metadata)
    assert_same_multi_vectors(directory)


# Static


@pytest.mark.parametrize(
    ("layout", "normalize"), in_turns(["sentence_transformers", "model2vec", "quantized"], [True, False])
)
def test_static_models(tmp_path: Path, layout: str, normalize: bool) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert(normalize=normalize))
    rows = json.loads((directory / "config.json").read_text())["vocab_size"]
    random = np.random.default_rng(SEED)
    table = random.standard_normal((rows, 24)).astype(np.float32)
    tensors: dict[str, Any] = {"embedding.weight": table} if layout == "sentence_transformers" else {}
    if layout == "model2vec":
        tensors = {"embeddings": table.astype(np.float16)}
    if layout == "quantized":
        tensors = {
            "embeddings": table[:50],
            "mapping": random.integers(0, 50, rows),
            "weights": random.random(rows),
        }
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    modules = json.loads((directory / "modules.json").read_text())
    static = {**modules[0], "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}
    (directory / "modules.json").write_text(json.dumps([static, *modules[2:]]))
    expected = load_reference(directory).float().encode([*TEXTS, ""])
    with open_mill(directory) as mill:
        assert_close(mill.embed([*TEXTS, ""]), expected)


def test_tokens_without_a_row_are_noticed(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    safetensors.numpy.save_file(
        {"embedding.weight": np.zeros((9, 4), np.float32)}, directory / "model.safetensors"
    )
    modules = json.loads((directory / "modules.json").read_text())
    static = {**modules[0], "type": "sentence_transformers.models.StaticEmbedding"}
    (directory / "modules.json").write_text(json.dumps([static]))
    with pytest.raises(CorruptModel, match="only 9 token embeddings"):
        describe_model(locate_model(directory))


# Tasks that were asked for


@pytest.mark.parametrize(
    ("class_name", "task"),
    [
        ("BertModel", Task.RERANK),
        ("BertModel", Task.SPARSE),
        ("BertForSequenceClassification", Task.RERANK),
        ("BertForTokenClassification", Task.CLASSIFY),
        ("BertForMaskedLM", Task.MULTI_VECTOR),
    ],
)
def test_a_task_that_the_model_cannot_do_is_refused(tmp_path: Path, class_name: str, task: Task) -> None:
    directory = save_model(tmp_path / "model", class_name)
    with pytest.raises(UnsupportedModel, match=f"the task {task} was requested, but a saved {class_name}"):
        describe_model(locate_model(directory), task)


def test_modules_have_one_task(tmp_path: Path) -> None:
    location = locate_model(save_tiny_bert(tmp_path / "model", TinyBert()))
    assert describe_model(location, Task.EMBED) == describe_model(location)
    with pytest.raises(UnsupportedModel, match="the task rerank was requested"):
        describe_model(location, Task.RERANK)


@pytest.mark.parametrize("class_name", ["BertForSequenceClassification", "BertForMaskedLM"])
def test_plain_models_embed_as_sentence_transformers_does(tmp_path: Path, class_name: str) -> None:
    directory = save_model(tmp_path / "model", class_name)
    expected = load_reference(directory).float().encode(TEXTS)
    with open_mill(directory, Task.EMBED) as mill:
        assert_close(mill.embed(TEXTS), expected)
