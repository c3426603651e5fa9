"""What a directory asks for is what sentence-transformers makes of it, whoever wrote the directory.

Each variant takes a tiny model, changes one thing about its directory, and compares rows with the reference
loaded from the very same files.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.graph_session import GraphSession
from support.published import edit_json
from support.reference import load_reference
from support.rows_check import PLANS, assert_same_rows
from support.texts import hard_texts, mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer

PROMPT = "represent this, please: "
SEED = 11
TEXTS = [*mixed_texts(SEED, 12), *hard_texts()]
ACTIVATION = "torch.nn.modules.activation."

Change = Callable[[Path], None]


def pooling(*modes: str, include_prompt: bool = True) -> Change:
    def change(directory: Path) -> None:
        settings = {"embedding_dimension": 32, "pooling_mode": modes, "include_prompt": include_prompt}
        (directory / "1_Pooling/config.json").write_text(json.dumps(settings))
        if len(modes) > 1:
            put_modules(directory, "Transformer:", "Pooling:1_Pooling")

    return change


def old_pooling(*flags: str) -> Change:
    def change(directory: Path) -> None:
        settings = {"word_embedding_dimension": 32, **{f"pooling_mode_{flag}": True for flag in flags}}
        (directory / "1_Pooling/config.json").write_text(json.dumps(settings))

    return change


def put_modules(directory: Path, *modules: str) -> None:
    """Each as class:folder."""
    entries = []
    for index, module in enumerate(modules):
        kind, _, folder = module.partition(":")
        kind = f"sentence_transformers.models.{kind}"
        entries.append({"idx": index, "name": str(index), "path": folder, "type": kind})
    (directory / "modules.json").write_text(json.dumps(entries))


def save_tensors(folder: Path, seed: int, **shapes: tuple[int, ...]) -> None:
    random = np.random.default_rng(seed)
    tensors = {name.replace("__", "."): 0.5 * random.standard_normal(shape) for name, shape in shapes.items()}
    safetensors.numpy.save_file(
        {name: value.astype(np.float32) for name, value in tensors.items()}, folder / "model.safetensors"
    )


def save_dense(folder: Path, inputs: int, outputs: int, *, bias: bool = True, **settings: Any) -> None:
    folder.mkdir()
    config = {"in_features": inputs, "out_features": outputs, "bias": bias, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"linear__weight": (outputs, inputs), **({"linear__bias": (outputs,)} if bias else {})}
    if settings.get("use_residual") and inputs != outputs:
        shapes["residual__weight"] = (outputs, inputs)
    save_tensors(folder, outputs, **shapes)


def dense(*, bias: bool = True, outputs: int = 24, **settings: Any) -> Change:
    def change(directory: Path) -> None:
        save_dense(directory / "2_Dense", 32, outputs, bias=bias, **settings)
        put_modules(directory, "Transformer:", "Pooling:1_Pooling", "Dense:2_Dense", "Normalize:3_Normalize")

    return change


def two_dense(directory: Path) -> None:
    save_dense(directory / "2_Dense", 32, 48, activation_function=ACTIVATION + "ReLU")
    save_dense(directory / "3_Dense", 48, 16, activation_function="torch.nn.modules.linear.Identity")
    put_modules(directory, "Transformer:", "Pooling:1_Pooling", "Dense:2_Dense", "Dense:3_Dense")


def dense_of_tokens(directory: Path) -> None:
    tokens: dict[str, Any] = {
        "module_input_name": "token_embeddings",
        "module_output_name": "token_embeddings",
    }
    save_dense(directory / "2_Dense", 32, 24, activation_function=ACTIVATION + "GELU", **tokens)
    (directory / "1_Pooling/config.json").write_text('{"word_embedding_dimension": 24}')
    put_modules(directory, "Transformer:", "Dense:2_Dense", "Pooling:1_Pooling")


def layer_norm(directory: Path) -> None:
    (directory / "2_LayerNorm").mkdir()
    (directory / "2_LayerNorm/config.json").write_text('{"dimension": 32}')
    save_tensors(directory / "2_LayerNorm", 3, norm__weight=(32,), norm__bias=(32,))
    put_modules(directory, "Transformer:", "Pooling:1_Pooling", "LayerNorm:2_LayerNorm")


def weighted_layers(first: int = 0, *, gives_layers: bool = True, old: bool = False) -> Change:
    """The tiny model has two layers."""

    def change(directory: Path) -> None:
        folder = directory / "1_WeightedLayerPooling"
        folder.mkdir()
        key = "word_embedding_dimension" if old else "embedding_dimension"
        settings = {key: 32, "layer_start": first, "num_hidden_layers": 2}
        (folder / "config.json").write_text(json.dumps(settings))
        save_tensors(folder, 5, layer_weights=(3 - first,))
        edit_json(directory / "config.json", output_hidden_states=gives_layers)
        put_modules(
            directory, "Transformer:", "WeightedLayerPooling:1_WeightedLayerPooling", "Pooling:1_Pooling"
        )

    return change


def normalize_first(directory: Path) -> None:
    save_dense(directory / "3_Dense", 32, 24)
    put_modules(directory, "Transformer:", "Pooling:1_Pooling", "Normalize:2_Normalize", "Dense:3_Dense")


def dropout(directory: Path) -> None:
    (directory / "2_Dropout").mkdir()
    (directory / "2_Dropout/config.json").write_text('{"dropout": 0.5}')
    put_modules(directory, "Transformer:", "Pooling:1_Pooling", "Dropout:2_Dropout")


def rename_tensors(old: str, new: str) -> Change:
    def change(directory: Path) -> None:
        path = directory / "model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        renamed = {name.replace(old, new): value for name, value in tensors.items()}
        safetensors.numpy.save_file(renamed, path, {"format": "pt"})

    return change


def save_shards(directory: Path) -> None:
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    path.unlink()
    parts: dict[str, Any] = {}
    files = {name: f"model-{index % 3 + 1:05}-of-00003.safetensors" for index, name in enumerate(tensors)}
    for name, file in files.items():
        parts.setdefault(file, {})[name] = tensors[name]
    for file, part in parts.items():
        safetensors.numpy.save_file(part, directory / file, {"format": "pt"})
    edit_json(directory / "model.safetensors.index.json", metadata={"total_size": 1}, weight_map=files)


def drop_modules(directory: Path) -> None:
    (directory / "modules.json").unlink()
    (directory / "1_Pooling/config.json").unlink()


def vocabulary_only(**tokenizer_config: Any) -> Change:
    def change(directory: Path) -> None:
        document = json.loads((directory / "tokenizer.json").read_text())
        numbered = sorted((number, token) for token, number in document["model"]["vocab"].items())
        (directory / "tokenizer.json").unlink()
        lines = [f"{token}\n" for _, token in numbered]
        (directory / "vocab.txt").write_text("".join(lines), encoding="utf-8")
        edit_json(directory / "tokenizer_config.json", **tokenizer_config)

    return change


def tokenizer_config(**values: Any) -> Change:
    return lambda directory: edit_json(directory / "tokenizer_config.json", **values)


def lower_case(directory: Path) -> None:
    edit_json(directory / "sentence_bert_config.json", do_lower_case=True)
    edit_json(directory / "tokenizer_config.json", do_lower_case=False)


def older_settings_file(directory: Path) -> None:
    (directory / "sentence_bert_config.json").rename(directory / "sentence_roberta_config.json")


def limit_in_arguments(directory: Path) -> None:
    edit_json(directory / "sentence_bert_config.json", tokenizer_args={"model_max_length": 17})


def limit_of_keys(**limits: Any) -> Change:
    """tokenizer_config.json alone has limits; ... stands for none."""

    def change(directory: Path) -> None:
        edit_json(directory / "sentence_bert_config.json", max_seq_length=None)
        settings = json.loads((directory / "tokenizer_config.json").read_text()) | limits
        settings = {key: value for key, value in settings.items() if value is not ...}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))

    return change


def keep_ends(directory: Path) -> None:
    truncation = {"direction": "Left", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
    edit_json(directory / "tokenizer.json", truncation=truncation)


def keep_starts(directory: Path) -> None:
    keep_ends(directory)
    edit_json(directory / "tokenizer_config.json", truncation_side="right")


def nothing_around_texts(directory: Path) -> None:
    edit_json(directory / "tokenizer.json", post_processor=None)


def types_that_are_not_given(directory: Path) -> None:
    document = json.loads((directory / "tokenizer.json").read_text())
    for piece in document["post_processor"]["single"]:
        next(iter(piece.values()))["type_id"] = 1
    edit_json(directory / "tokenizer.json", **document)
    edit_json(directory / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


VARIANTS: dict[str, Change] = {
    **{
        f"{mode}_{include}": pooling(mode, include_prompt=include == "with_prompt")
        for mode in ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
        for include in ("with_prompt", "without_prompt")
    },
    "several_poolings": pooling("cls", "mean", "max", "lasttoken"),
    "several_poolings_without_prompt": pooling("weightedmean", "mean", include_prompt=False),
    "several_old_flags": old_pooling("mean_tokens", "max_tokens", "cls_token"),
    "old_sqrt_flag": old_pooling("mean_sqrt_len_tokens"),
    "old_weighted_flag": old_pooling("weightedmean_tokens"),
    "old_last_flag": old_pooling("lasttoken"),
    "dense_default": dense(),
    **{
        f"dense_{kind.lower()}": dense(activation_function=ACTIVATION + kind)
        for kind in ("Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")
    },
    "dense_identity": dense(activation_function="torch.nn.modules.linear.Identity"),
    "dense_without_bias": dense(bias=False),
    "dense_residual": dense(outputs=32, use_residual=True),
    "dense_projected_residual": dense(use_residual=True),
    "two_dense": two_dense,
    "dense_of_tokens": dense_of_tokens,
    "layer_norm": layer_norm,
    **{f"weighted_layers_from_{first}": weighted_layers(first) for first in range(3)},
    "weighted_layers_of_old": weighted_layers(1, old=True),
    "weighted_layers_that_are_not_given": weighted_layers(gives_layers=False),
    "normalize_first": normalize_first,
    "dropout": dropout,
    "gamma_and_beta": lambda directory: (
        rename_tensors("LayerNorm.weight", "LayerNorm.gamma")(directory),
        rename_tensors("LayerNorm.bias", "LayerNorm.beta")(directory),
    )[0],
    "shards": save_shards,
    "plain": drop_modules,
    "truncate_dim": lambda directory: edit_json(
        directory / "config_sentence_transformers.json", truncate_dim=10
    ),
    "truncate_dim_beyond_width": lambda directory: edit_json(
        directory / "config_sentence_transformers.json", truncate_dim=99
    ),
    "vocabulary_lower": vocabulary_only(do_lower_case=True),
    "vocabulary_cased": vocabulary_only(do_lower_case=False),
    "vocabulary_accents": vocabulary_only(strip_accents=False, tokenize_chinese_chars=False),
    "config_overrules_letters": tokenizer_config(do_lower_case=False),
    "config_overrules_accents": tokenizer_config(strip_accents=False),
    "config_of_any_class": tokenizer_config(do_lower_case=False, tokenizer_class="PreTrainedTokenizerFast"),
    "lower_case": lower_case,
    "older_settings_file": older_settings_file,
    "limit_in_arguments": limit_in_arguments,
    "limit_of_older_key": limit_of_keys(model_max_length=..., max_len=17),
    "limit_of_both_keys": limit_of_keys(model_max_length=20, max_len=17),
    "limit_of_neither_key": limit_of_keys(model_max_length=None, max_len=17),
    "truncation_side": tokenizer_config(truncation_side="left"),
    "stored_truncation_side": keep_ends,
    "stored_truncation_side_overruled": keep_starts,
    "nothing_around_texts": nothing_around_texts,
    "types_that_are_not_given": types_that_are_not_given,
}


# The longest texts take most of the time, and are cut like others that these models cannot read as a whole.
at_both_scales = pytest.mark.parametrize(
    "longest", [2_000, pytest.param(100_000, marks=pytest.mark.full)], ids=["short texts", "all texts"]
)


def assert_same_as_library(
    directory: Path, texts: Sequence[str], *asked: Mapping[str, str], longest: int, seed: int
) -> None:
    """Compare the rows of texts of at most `longest` letters, each time with other options of `encode`."""
    description, reference = describe_model(locate_model(directory)), load_reference(directory).float()
    session = GraphSession(build_graph(description), normalizes=description.normalizes_output)
    tokenizer = Tokenizer.load(description)
    kept = [index for index, text in enumerate(texts) if len(text) <= longest]
    for options in asked:
        rows = np.asarray(reference.encode(texts, convert_to_numpy=True, **options), np.float32)
        assert rows.shape[1] == description.dim
        sequences = tokenizer.encode([texts[index] for index in kept], prompt=options.get("prompt", ""))
        plans = ("random",) if longest < 10_000 or options.get("prompt") else PLANS
        assert_same_rows(session.run, sequences, rows[kept], seed=seed, plans=plans)


@at_both_scales
@pytest.mark.parametrize("name", VARIANTS)
def test_rows_are_those_of_the_reference(name: str, longest: int, tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert(lowercase=name != "vocabulary_cased"))
    VARIANTS[name](directory)
    assert describe_model(locate_model(directory)).max_tokens == load_reference(directory).max_seq_length
    assert_same_as_library(directory, TEXTS, {"prompt": ""}, {"prompt": PROMPT}, longest=longest, seed=SEED)
