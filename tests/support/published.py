"""Directories as their publishers lay them out, with tiny random weights of the real class.

What a publisher ships beside the weights is written down here from the models' own pages: settings, modules,
prompts, names of classes. Sizes are tiny, and tokenizers of the real class have a small vocabulary.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from support.families import JITTER, save_class
from support.references import draw_weights, make_directory
from support.tokenizers_of_class import make_tokenizer
from support.tokenizers_of_kind import save_tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.sample_texts import prose_words

WIDTH = 32
LONGEST = 40
IDENTITY = "torch.nn.modules.linear.Identity"
TANH = "torch.nn.modules.activation.Tanh"
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}

# A module of modules.json and its folder; what its config.json says.
Module = tuple[str, str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Published:
    """A model as it was published.

    `class_name` is the class of the weights and `settings` go into its config on top of `SIZES`; `tokenizer`
    is a class of transformers, or a kind of `save_tokenizer`, and `frame` what its tokenizer.json puts around
    texts, where that is not up to the class. `modules` come after the Transformer; `None` where there is no
    modules.json. `spelling` are keys of config.json that only publishers write, and that replace those of the
    same meaning in `instead`; `rename` gives tensors the publisher's names. `error` is what refuses the
    model.
    """

    class_name: str
    tokenizer: str
    modules: tuple[Module, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    sentence: Mapping[str, Any] | None = field(default_factory=lambda: {"max_seq_length": LONGEST})
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    spelling: Mapping[str, Any] = field(default_factory=dict)
    instead: tuple[str, ...] = ()
    rename: Callable[[Mapping[str, FloatArray]], dict[str, FloatArray]] | None = None
    first_module: str = "sentence_transformers.models.Transformer"
    frame: str | None = None
    error: str | None = None


def pooling(mode: str, **settings: Any) -> Module:
    flags = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    written = {f"pooling_mode_{flag}": kind == mode for kind, flag in flags.items()}
    return ("Pooling", "1_Pooling", {"word_embedding_dimension": WIDTH, **written, **settings})


def dense(folder: str, inputs: int, outputs: int, *, bias: bool, activation: str) -> Module:
    settings = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": bias,
        "activation_function": activation,
    }
    return ("Dense", folder, settings)


NORMALIZE: Module = ("Normalize", "2_Normalize", {})


def save_published(folder: Path, model: Published, *, seed: int = 0, jitter: float = JITTER) -> Path:
    """Write all but the publisher's own spelling of config.json, which `respell` adds."""
    settings: Mapping[str, Any] = {**SIZES, **model.settings}
    recipe = ["published", model.class_name, model.tokenizer, model.frame, settings]
    make_directory(
        folder,
        recipe,
        lambda folder: _save_classes(folder, model, settings),
        draw_weights(seed, jitter),
        repeatable=False,  # its tokenizer may be trained
    )
    edit_json(folder / "tokenizer_config.json", **model.tokenizer_config)
    if model.sentence is not None:
        edit_json(folder / "sentence_bert_config.json", **model.sentence)
    if model.modules is None:
        return folder
    edit_json(
        folder / "config_sentence_transformers.json",
        __version__={"sentence_transformers": "3.0.1", "transformers": "4.41.2", "pytorch": "2.3.0"},
        prompts=dict(model.prompts),
        default_prompt_name=model.default_prompt,
    )
    entries = [{"idx": 0, "name": "0", "path": "", "type": model.first_module}]
    for index, (kind, path, settings) in enumerate(model.modules, 1):
        entry = {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        entries.append(entry)
        _save_module(folder / path, kind, settings, seed + index)
    (folder / "modules.json").write_text(json.dumps(entries))
    return folder


def respell(folder: Path, model: Published) -> None:
    """Give config.json and the tensors the publisher's own spelling."""
    document = json.loads((folder / "config.json").read_text())
    kept = {key: value for key, value in document.items() if key not in model.instead}
    (folder / "config.json").write_text(json.dumps({**kept, **model.spelling}))
    if model.rename is not None:
        path = folder / "model.safetensors"
        renamed = model.rename(safetensors.numpy.load_file(path))
        safetensors.numpy.save_file(renamed, path, metadata={"format": "pt"})


def edit_json(path: Path, /, **values: Any) -> None:
    """Set keys of a JSON object, which is made if it is not there."""
    document = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**document, **values}))


def _save_classes(folder: Path, model: Published, settings: Mapping[str, Any]) -> None:
    """Save the tokenizer and the weights as their classes do."""
    sizes: dict[str, Any] = {"vocab_size": _save_tokenizer(folder, model), **settings}
    save_class(folder, model.class_name, {name: value for name, value in sizes.items() if value is not None})


def _save_tokenizer(folder: Path, model: Published) -> int:
    folder.mkdir(parents=True)
    if model.tokenizer.endswith("Tokenizer"):
        tokenizer = make_tokenizer(model.tokenizer)
        if model.frame is not None:
            _put_around(tokenizer, model.frame)
        tokenizer.save_pretrained(folder)
        return len(tokenizer)
    save_tokenizer(folder, model.tokenizer, [" ".join(prose_words()[:3_000])], longest=LONGEST)
    document = json.loads((folder / "tokenizer.json").read_text())
    numbers = [int(token["id"]) for token in document["added_tokens"]]
    return max(len(document["model"]["vocab"]), 1 + max(numbers))


def _put_around(tokenizer: Any, frame: str) -> None:
    from tokenizers import processors

    used = [token for token in frame.split() if token != "$A"]
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single=frame,
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in used],
    )


def _save_module(folder: Path, kind: str, settings: Mapping[str, Any], seed: int) -> None:
    folder.mkdir()
    if settings:
        (folder / "config.json").write_text(json.dumps(settings))
    if kind == "Dense":
        random = np.random.default_rng(seed)
        shape = (settings["out_features"], settings["in_features"])
        tensors = {"linear.weight": 0.5 * random.standard_normal(shape)}
        if settings["bias"]:
            tensors["linear.bias"] = 0.5 * random.standard_normal(shape[0])
        safetensors.numpy.save_file(
            {name: value.astype(np.float32) for name, value in tensors.items()}, folder / "model.safetensors"
        )
