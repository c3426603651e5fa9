"""Models of architectures without a vecmill graph, run by the classes of transformers.

Some of these classes treat the padded length as the length of the text. So each call has texts of one length
without padding, and the embedding of a text does not depend on the other texts. Nor does it depend on earlier
calls (`module_copies`). The pooling stages are vecmill's own, as a program over the hidden states of all
tokens.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vecmill.engines.buckets import pad_texts
from vecmill.engines.long_texts import compute_groups
from vecmill.engines.torch.module_copies import ModuleCopies
from vecmill.engines.torch.program import make_program
from vecmill.engines.torch.replica import (
    Outputs,
    choose_outputs,
    read_outputs,
    select_outputs,
    send_arrays,
)
from vecmill.errors import CorruptModel, MissingExtra, UnsupportedModel, one_line
from vecmill.graphs.batch_layout import IndexedLayout
from vecmill.graphs.exported import build_stages
from vecmill.graphs.steps import list_steps
from vecmill.models.heads import HeadKind
from vecmill.values.batch import Batch
from vecmill.values.embeddings import OutputShape
from vecmill.values.messages import pip_command, show
from vecmill.values.positions import BatchShape, Positions, index_batch, refuse_unknown_tokens

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

_HIDDEN = "hidden"

# The class of transformers for each head, `None` for no head.
_CLASSES: Mapping[HeadKind | None, str] = {
    None: "AutoModel",
    HeadKind.SEQUENCE: "AutoModelForSequenceClassification",
    HeadKind.TOKENS: "AutoModelForTokenClassification",
    HeadKind.VOCABULARY: "AutoModelForMaskedLM",
}
# The class of the encoder of models that have a decoder too, by `model_type`: it alone embeds a text. Source:
# sentence-transformers 6.2, `_ENCODER_ONLY_MODELS` in `base/modules/transformer.py`.
_ENCODERS: Mapping[str, str] = {
    "blenderbot": "BlenderbotEncoder",
    "blenderbot-small": "BlenderbotSmallEncoder",
    "longt5": "LongT5EncoderModel",
    "m2m_100": "M2M100Encoder",
    "marian": "MarianEncoder",
    "pegasus": "PegasusEncoder",
    "pegasus_x": "PegasusXEncoder",
    "prophetnet": "ProphetNetEncoder",
    "switch_transformers": "SwitchTransformersEncoderModel",
    "t5": "T5EncoderModel",
    "udop": "UdopEncoderModel",
}


class TransformersProgram:
    """A model of transformers on `device`, followed by the pooling stages."""

    def __init__(self, model: Any, description: "ModelDescription", device: torch.device) -> None:
        self._models = ModuleCopies(model)
        self._device = device
        self._output_shape = description.output_shape
        self._token_count = description.vocab_size
        self._takes = _list_inputs(model, gives_types=description.gives_token_types)
        self._stages: Callable[..., Sequence[torch.Tensor]] | None = None
        self._indices: tuple[str, ...] = ()
        self._width = _width_of(description)
        if description.stages:
            steps = list_steps(build_stages(description, self._width, IndexedLayout))
            self._stages = make_program(steps, dtype=torch.float32, device=device)
            self._indices = tuple(steps.inputs)

    def __call__(self, batch: Batch) -> Outputs:
        """Compute the outputs for `batch`; see `ModelCall`."""
        refuse_unknown_tokens(batch, self._token_count)
        groups = [np.flatnonzero(batch.lengths == length) for length in np.unique(batch.lengths)]
        return compute_groups(self._compute, batch, groups, self._output_shape)

    def _compute(self, batch: Batch) -> Outputs:
        """Compute the outputs of texts of one length."""
        padded = pad_texts(batch, texts=len(batch), length=int(batch.lengths[0]), pad_id=0)
        tensors = send_arrays([padded[name] for name in self._takes], self._device)
        with self._models.take() as model:
            found = model(**dict(zip(self._takes, tensors, strict=True)), return_dict=True)
        dense = (found.logits if "logits" in found else found.last_hidden_state).float()
        shape = (*padded["input_ids"].shape, self._width)
        if dense.dim() == 3 and dense.shape != shape:  # or the stages would read the values of other tokens
            raise ValueError(f"the class returns the shape {list(dense.shape)} instead of {list(shape)}")
        if self._stages is not None:
            dense_outputs = self._apply_stages(dense, batch)
            return read_outputs(
                select_outputs(dense_outputs, batch, self._output_shape), batch, self._output_shape
            )
        if self._output_shape is OutputShape.TOKEN:
            dense = dense.reshape(-1, dense.shape[-1])
        selected = select_outputs([dense], batch, self._output_shape)
        return read_outputs(selected, batch, self._output_shape)

    def _apply_stages(self, hidden: torch.Tensor, batch: Batch) -> list[torch.Tensor]:
        assert self._stages is not None
        positions = Positions.of(batch, shares_prefixes=False)
        names = [name for name in self._indices if name != _HIDDEN]
        arrays = index_batch(batch, positions, BatchShape.of(batch, positions), names)
        given = dict(zip(names, send_arrays([arrays[name] for name in names], self._device), strict=True))
        found = self._stages(*({**given, _HIDDEN: hidden}[name] for name in self._indices))
        return choose_outputs(found, batch)


def load_transformers_program(
    description: "ModelDescription", dtype: torch.dtype, device: torch.device
) -> TransformersProgram:
    """Load the model of `description` onto `device`, in `dtype`.

    Raises `MissingExtra` without transformers, `UnsupportedModel` if no class of transformers runs the model,
    and `CorruptModel` if weights are missing.
    """
    check_transformers_model(description)
    model = _load(description, description.weights_files[0].parent, dtype)
    return TransformersProgram(model.to(device).eval(), description, device)


def check_transformers_model(description: "ModelDescription") -> None:
    """Raise `UnsupportedModel` for heads that no class of transformers has, and for PyTorch's files."""
    kind = _head_kind(description)
    if kind not in _CLASSES:
        raise UnsupportedModel(
            f"{description.directory}: model_type {description.architecture!r} with a {kind} head is not "
            "supported."
        )
    if description.has_pytorch_weights:
        raise UnsupportedModel(
            f"{description.weights_files[0]}: for model_type {description.architecture!r} only safetensors "
            "are read. Save the model as safetensors, with any recent transformers."
        )


def _width_of(description: "ModelDescription") -> int:
    """Return the width of the states or logits that the class returns for each token."""
    match _head_kind(description):
        case None:
            return description.encoder.output_size
        case HeadKind.VOCABULARY:
            return description.vocab_size
    return description.dim


def _head_kind(description: "ModelDescription") -> HeadKind | None:
    return None if description.head is None else description.head.kind


def _load(description: "ModelDescription", folder: Path, dtype: torch.dtype) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra(
            f"model_type {description.architecture!r} needs transformers, which is not installed: "
            f"{pip_command('install', 'vecmill[torch]')}."
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers' own code
        transformers.logging.set_verbosity_error()  # `_check_whole` reports missing weights
        transformers.logging.disable_progress_bar()
        try:
            model, report = _find_class(description).from_pretrained(
                str(folder),
                dtype=dtype,
                trust_remote_code=description.runs_code,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
        except Exception as error:  # each class raises exceptions of its own
            raise UnsupportedModel(
                f"{folder}: transformers {transformers.__version__} cannot load model_type "
                f"{show(description.architecture)}: {one_line(error)}"
            ) from error
    _check_whole(report, description, folder)
    return model


def _find_class(description: "ModelDescription") -> Any:
    """Return the class of transformers that computes a model."""
    import transformers

    encoder = _find_encoder(description)
    if encoder is None:
        return getattr(transformers, _CLASSES[_head_kind(description)])
    name = description.architecture.replace("-", "_")
    return getattr(importlib.import_module(f"transformers.models.{name}.modeling_{name}"), encoder)


def _find_encoder(description: "ModelDescription") -> str | None:
    """Return the name of the class of the encoder, if that alone computes the model."""
    is_whole = description.head is not None or description.runs_code
    return None if is_whole else _ENCODERS.get(description.architecture)


def _check_whole(report: Mapping[str, Any], description: "ModelDescription", folder: Path) -> None:
    """Raise `CorruptModel` for weights that transformers initialised, except an unused pooler."""
    missing = sorted(name for name in report["missing_keys"] if description.head or "pooler" not in name)
    if missing or report["mismatched_keys"]:
        names = ", ".join(missing[:3]) or str(report["mismatched_keys"])
        encoder = _find_encoder(description)
        remedy = "Download the model again."
        if encoder is not None:
            remedy = f"If they are those of encoder and decoder, save the encoder alone, as {encoder}."
        raise CorruptModel(
            f"{folder}: the weights lack these tensors or have them in another shape: {names}. {remedy}"
        )


def _list_inputs(model: torch.nn.Module, *, gives_types: bool) -> tuple[str, ...]:
    """Return the inputs of `model` that its tokenizer gives; some classes compute types 0 as another text."""
    import inspect

    names = ("input_ids", "attention_mask", *(("token_type_ids",) if gives_types else ()))
    taken = inspect.signature(model.forward).parameters
    return tuple(name for name in names if name in taken)
