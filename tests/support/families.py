"""Architecture families against the classes of transformers that they stand for.

Where transformers has none, `own_code_models` has a class from the published formulas.

A tiny model of the real class, its weights jittered so far from their usual start that every part
matters, is saved as its users save it. What our graph computes from those files is compared with the
class in fp32, each text alone and without padding: in batches of one, and in mixed ones.

A planted defect changes the config, a tensor or the mask on our side only; the same check must fail.
"""

import inspect
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import safetensors.numpy

from support.graph_session import GraphSession
from support.rows_check import TOLERANCE, batch_plans
from vecmill.architectures.registry import find_graph_class, read_encoder
from vecmill.graphs.batch_layout import RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.models.heads import HeadKind
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence

JITTER = 0.3


@dataclass(frozen=True, slots=True)
class TinyFamily:
    """A model of transformers in fp32, and the two files that ours is built from."""

    reference: Any
    config: Mapping[str, Any]
    weights_file: Path

    def with_config(self, **changes: Any) -> "TinyFamily":
        """The same, but our side reads another config."""
        return replace(self, config={**self.config, **changes})

    def with_tensor(self, suffix: str, change: Callable[[FloatArray], FloatArray]) -> "TinyFamily":
        """The same, but on our side every tensor whose name ends in `suffix` is changed."""
        tensors = safetensors.numpy.load_file(self.weights_file)
        changed = [name for name in tensors if name.endswith(suffix)]
        assert changed, f"no tensor ends in {suffix}"
        return self._with_tensors(tensors | {name: change(tensors[name]) for name in changed})

    def with_names(self, rename: Callable[[str], str]) -> "TinyFamily":
        """The same, but on our side tensors have other names."""
        tensors = safetensors.numpy.load_file(self.weights_file)
        renamed = {rename(name): tensor for name, tensor in tensors.items()}
        assert set(renamed) != set(tensors)
        return self._with_tensors(renamed)

    def compute(self, sequences: Sequence[TokenSequence]) -> FloatArray:
        """Our hidden states of all tokens, in one batch: (tokens, hidden_size)."""
        session = GraphSession(build_family(self), self.weights_file.parent)
        return session.run(Batch.of(sequences)).values

    def _with_tensors(self, tensors: Mapping[str, FloatArray]) -> "TinyFamily":
        path = self.weights_file.with_name("changed.safetensors")
        safetensors.numpy.save_file({name: np.ascontiguousarray(tensors[name]) for name in tensors}, path)
        return replace(self, weights_file=path)


def save_tiny_family(
    folder: Path, class_name: str, *, seed: int = 0, jitter: float = JITTER, **settings: Any
) -> TinyFamily:
    """A model of transformers' class `class_name` with `settings` in its config, saved into `folder`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        model_class = _find_class(class_name)
        config = model_class.config_class(**settings)
        config._attn_implementation = config._experts_implementation = "eager"
        torch.manual_seed(seed)
        reference = model_class(config).float().eval()
        with torch.no_grad():
            for name, parameter in reference.named_parameters():
                module = name.removesuffix(".weight").rpartition(".")[2].lower()
                around = 1.0 if "norm" in module and name.endswith("weight") else 0.0
                parameter.copy_(around + jitter * torch.randn_like(parameter))
        transformers.logging.disable_progress_bar()
        reference.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text("utf-8"))
    published = getattr(model_class.config_class, "published_type", written["model_type"])
    return TinyFamily(reference, {**written, "model_type": published}, folder / "model.safetensors")


def _find_class(name: str) -> Any:
    """A class of transformers, or of `own_code_models` if its name begins with "Reference"."""
    import transformers

    if not name.startswith("Reference"):
        return getattr(transformers, name)
    from support import own_code_models

    return getattr(own_code_models, name)


def random_sequences(
    lengths: Sequence[int], *, vocab_size: int, token_types: int = 1, often: Sequence[int] = (), seed: int = 0
) -> list[TokenSequence]:
    """Sequences of any ids; about one token in six is one of `often` (padding, say)."""
    random = np.random.default_rng(seed)
    sequences = []
    for length in lengths:
        ids = random.integers(0, vocab_size, length)
        if often:
            ids = np.where(random.random(length) < 1 / 6, random.choice(np.asarray(often), length), ids)
        types = np.sort(random.integers(0, token_types, length))
        sequences.append(TokenSequence.of(ids.tolist(), types.tolist()))
    return sequences


def build_family(tiny: TinyFamily, head: HeadKind | None = None, *, labels: int = 0) -> ir.Model:
    """Our graph for the files of `tiny`: hidden states of all tokens, or the logits of a head."""
    op = Ops()
    layout = RaggedLayout(op)
    encoder = read_encoder(tiny.config, "config.json")
    weights = Weights.open(tiny.weights_file).tied(encoder.ties)
    family = find_graph_class(encoder)(op, layout, encoder, weights)
    hidden = family.encode()
    match head:
        case None:
            return op.model(hidden, "rows", ["rows", encoder.output_size])
        case HeadKind.SEQUENCE:
            return op.model(family.classify(hidden, labels), "rows", ["rows", labels])
        case HeadKind.TOKENS:
            return op.model(family.classify_tokens(hidden, labels), "rows", ["rows", labels])
        case _:
            return op.model(family.predict_tokens(hidden), "rows", ["rows", encoder.vocab_size])


def assert_agrees(
    tiny: TinyFamily,
    sequences: Sequence[TokenSequence],
    head: HeadKind | None = None,
    *,
    labels: int = 0,
    tolerance: float = TOLERANCE,
) -> float:
    """Our graph gives what the class gives, whoever shares the batch. Returns the largest difference."""
    expected = [_reference_rows(tiny.reference, sequence) for sequence in sequences]
    folder = tiny.weights_file.parent
    session = GraphSession(build_family(tiny, head, labels=labels), folder)
    largest = 0.0
    for name, plan in batch_plans([len(sequence) for sequence in sequences], seed=0).items():
        for indices in plan:
            found = session.run(Batch.of([sequences[index] for index in indices])).values
            wanted = np.concatenate([expected[index] for index in indices])
            assert found.shape == wanted.shape
            difference = float(np.abs(found - wanted).max())
            # Written so that NaN fails.
            assert difference <= tolerance, f"batches {name}: off by {difference:.2e}"
            largest = max(largest, difference)
    assert math.isfinite(largest)
    return largest


def _reference_rows(reference: Any, sequence: TokenSequence) -> FloatArray:
    """(tokens, width), or (1, labels) for a whole text."""
    import torch

    inputs = {
        "input_ids": torch.from_numpy(sequence.token_ids)[None],
        "attention_mask": torch.ones(1, len(sequence), dtype=torch.long),
        "token_type_ids": torch.from_numpy(sequence.token_type_ids)[None],
    }
    taken = inspect.signature(reference.forward).parameters
    with torch.no_grad():
        output = reference(**{name: value for name, value in inputs.items() if name in taken})
    rows = output.logits if "logits" in output else output.last_hidden_state
    return np.atleast_2d(rows.squeeze(0).float().numpy())
