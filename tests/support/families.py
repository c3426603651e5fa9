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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import safetensors.numpy

from support.graph_session import GraphSession
from support.references import Reference, digest_directory, draw_weights, make_directory
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
    """A model of transformers in fp32, recorded or loaded, and the two files that ours is built from."""

    reference: Reference
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
        session = GraphSession(build_family(self))
        return session.run(Batch.of(sequences)).values

    def _with_tensors(self, tensors: Mapping[str, FloatArray]) -> "TinyFamily":
        path = self.weights_file.with_name("changed.safetensors")
        safetensors.numpy.save_file({name: np.ascontiguousarray(tensors[name]) for name in tensors}, path)
        return replace(self, weights_file=path)


# What config.json says of classes that transformers has under names of their own.
_PUBLISHED_TYPES: Mapping[str, str] = {
    "reference_jina_bert": "bert",
    "reference_jina_bert_code": "bert",
    "reference_nomic_mixture": "nomic_bert",
    "reference_minicpm": "minicpm",
    "reference_lfm2_bidirectional": "lfm2",
}


def save_tiny_family(
    folder: Path, class_name: str, *, seed: int = 0, jitter: float = JITTER, **settings: Any
) -> TinyFamily:
    """A model of transformers' class `class_name` with `settings` in its config, saved into `folder`."""

    make_directory(
        folder,
        ["tiny family", class_name, settings],
        lambda folder: save_class(folder, class_name, settings),
        draw_weights(seed, jitter),
    )
    return open_tiny_family(folder, class_name)


def open_tiny_family(folder: Path, class_name: str) -> TinyFamily:
    """The model of transformers' class `class_name` with the files in `folder`."""
    written = json.loads((folder / "config.json").read_text("utf-8"))
    published = _PUBLISHED_TYPES.get(written["model_type"], written["model_type"])
    reference = Reference(lambda: load_class(folder, class_name), digest_directory(folder))
    return TinyFamily(reference, {**written, "model_type": published}, folder / "model.safetensors")


def save_class(folder: Path, class_name: str, settings: Mapping[str, Any]) -> None:
    """Save a model of the class in fp32, as it starts."""
    with quiet_library():
        model_class = _find_class(class_name)
        model_class(model_class.config_class(**settings)).float().save_pretrained(folder)


def load_class(folder: Path, class_name: str) -> Any:
    """Load a model of the class in fp32, whose attention is computed as it is written."""
    with quiet_library():
        model_class = _find_class(class_name)
        config = model_class.config_class.from_pretrained(folder)
        config._attn_implementation = config._experts_implementation = "eager"
        return model_class.from_pretrained(folder, config=config).float().eval()


@contextmanager
def quiet_library() -> Iterator[None]:
    """Keep what transformers prints and warns of out of the tests' reports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        yield


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
    expected = reference_rows(tiny.reference, sequences)
    session = GraphSession(build_family(tiny, head, labels=labels))
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


def reference_rows(reference: Reference, sequences: Sequence[TokenSequence]) -> list[FloatArray]:
    """What the class gives for each sequence alone: (tokens, width), or (1, labels) for a whole text."""
    question = ["rows", *([one.token_ids, one.token_type_ids] for one in sequences)]
    rows: list[FloatArray] = reference.ask(
        question, lambda model: [_compute_rows(model, sequence) for sequence in sequences]
    )
    return rows


def _compute_rows(reference: Any, sequence: TokenSequence) -> FloatArray:
    import torch

    inputs = {
        "input_ids": torch.tensor(sequence.token_ids)[None],
        "attention_mask": torch.ones(1, len(sequence), dtype=torch.long),
        "token_type_ids": torch.tensor(sequence.token_type_ids)[None],
    }
    taken = inspect.signature(reference.forward).parameters
    with torch.no_grad():
        output = reference(**{name: value for name, value in inputs.items() if name in taken})
    rows = output.logits if "logits" in output else output.last_hidden_state
    return np.atleast_2d(rows.squeeze(0).float().numpy())
