"""Architectures for which we have no graph, run by transformers' own classes.

What such a class makes of padding is its own affair: some take the padded length for the text's. So texts of
one length make a call, nothing is ever padded, and a row is what the text would have alone. What comes out is
taken further by our own stages, as a program over the hidden states of all tokens.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vecmill.engines.buckets import pad_texts, select_texts
from vecmill.engines.indices import Extent, index_batch, refuse_unknown_tokens
from vecmill.engines.torch.program import make_program
from vecmill.engines.torch.replica import Outputs, read_rows, send_arrays
from vecmill.errors import CorruptModel, MissingExtra, UnsupportedModel
from vecmill.graphs.exported import build_stages
from vecmill.graphs.layout import IndexedLayout
from vecmill.graphs.steps import list_steps
from vecmill.models.heads import HeadKind
from vecmill.types import Batch, RowForm, TokenSequence

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

_HIDDEN = "hidden"

# transformers' class for each head, `None` for no head.
_CLASSES: Mapping[HeadKind | None, str] = MappingProxyType(
    {
        None: "AutoModel",
        HeadKind.SEQUENCE: "AutoModelForSequenceClassification",
        HeadKind.TOKENS: "AutoModelForTokenClassification",
        HeadKind.VOCABULARY: "AutoModelForMaskedLM",
    }
)


class LibraryProgram:
    """A model of transformers and what makes rows of its output, on `device`."""

    def __init__(self, model: Any, description: "ModelDescription", device: torch.device) -> None:
        self._model = model
        self._device = device
        self._form = description.row_form
        self._token_count = description.vocab_size
        self._takes = _inputs_of(model)
        self._stages: Callable[..., torch.Tensor] | None = None
        self._indices: tuple[str, ...] = ()
        if description.stages:
            width = (
                description.vocab_size if description.head is not None else description.encoder.hidden_size
            )
            steps = list_steps(build_stages(description, width, IndexedLayout))
            self._stages = make_program(steps, dtype=torch.float32, device=device)
            self._indices = steps.inputs

    def __call__(self, batch: Batch) -> Outputs:
        """As `replica.Computer`."""
        refuse_unknown_tokens(batch, self._token_count)
        groups = [np.flatnonzero(batch.lengths == length) for length in np.unique(batch.lengths)]
        if len(groups) == 1:
            return self._compute(batch)
        outputs = [self._compute(select_texts(batch, group.tolist())) for group in groups]
        return _restore_order(outputs, groups, batch, self._form)

    def _compute(self, batch: Batch) -> Outputs:
        """The outputs of texts of one length."""
        padded = pad_texts(batch, texts=len(batch), length=int(batch.lengths[0]), filler=0)
        tensors = send_arrays([padded[name] for name in self._takes], self._device)
        found = self._model(**dict(zip(self._takes, tensors, strict=True)), return_dict=True)
        dense = (found.logits if "logits" in found else found.last_hidden_state).float()
        if self._stages is not None:
            dense = self._apply_stages(dense, batch)
        elif self._form is RowForm.TOKEN:
            dense = dense.reshape(-1, dense.shape[-1])
        return read_rows(dense, batch, self._form)

    def _apply_stages(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        assert self._stages is not None
        arrays = index_batch(batch, Extent.of(batch))
        names = [name for name in self._indices if name != _HIDDEN]
        given = dict(zip(names, send_arrays([arrays[name] for name in names], self._device), strict=True))
        return self._stages(*({**given, _HIDDEN: hidden}[name] for name in self._indices))


def load_library_program(
    description: "ModelDescription", dtype: torch.dtype, device: torch.device
) -> LibraryProgram:
    """The model of `description` on `device`, in `dtype`.

    Raises `MissingExtra` without transformers, `UnsupportedModel` for what its classes do not do, and
    `CorruptModel` if weights are missing.
    """
    kind = None if description.head is None else description.head.kind
    if kind not in _CLASSES:
        raise UnsupportedModel(
            f"{description.directory}: model_type {description.architecture!r} with a {kind} head is not "
            "supported."
        )
    model = _load(_CLASSES[kind], description, description.weights_files[0].parent, dtype)
    program = LibraryProgram(model.to(device).eval(), description, device)
    _try(program, description)
    return program


def _load(class_name: str, description: "ModelDescription", folder: Path, dtype: torch.dtype) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra(
            f"model_type {description.architecture!r} is run by transformers, which is not installed: "
            "pip install 'vecmill[torch]'."
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        transformers.logging.set_verbosity_error()  # what is missing is said below, once
        transformers.logging.disable_progress_bar()
        try:
            model, report = getattr(transformers, class_name).from_pretrained(
                str(folder),
                dtype=dtype,
                trust_remote_code=description.runs_code,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
        except Exception as error:  # it raises whatever its classes raise
            raise UnsupportedModel(
                f"{folder}: transformers {transformers.__version__} cannot load model_type "
                f"{description.architecture!r} as {class_name}: {error}"
            ) from error
    _check_whole(report, description, folder)
    return model


def _check_whole(report: Mapping[str, Any], description: "ModelDescription", folder: Path) -> None:
    """Refuse weights that the library made up; nobody reads a pooler where there is no head."""
    missing = sorted(name for name in report["missing_keys"] if description.head or "pooler" not in name)
    if missing or report["mismatched_keys"]:
        names = ", ".join(missing[:3]) or str(report["mismatched_keys"])
        raise CorruptModel(
            f"{folder}: the weights lack or have in another shape: {names}. Get the model again."
        )


def _inputs_of(model: Any) -> tuple[str, ...]:
    import inspect

    taken = inspect.signature(model.forward).parameters
    return tuple(name for name in ("input_ids", "attention_mask", "token_type_ids") if name in taken)


def _restore_order(outputs: list[Outputs], groups: list[Any], batch: Batch, form: RowForm) -> Outputs:
    """The outputs of groups of texts, in the order of the texts in `batch`."""
    order = np.argsort(np.concatenate(groups), kind="stable")
    if form is RowForm.TEXT:
        return [np.concatenate([found[0] for found in outputs])[order]]
    counts = [
        found[2] if form is RowForm.SPARSE else batch.lengths[group]
        for found, group in zip(outputs, groups, strict=True)
    ]
    ends = np.cumsum(np.concatenate(counts))[:-1]
    columns = 2 if form is RowForm.SPARSE else 1
    parts = [np.split(np.concatenate([found[place] for found in outputs]), ends) for place in range(columns)]
    restored = [np.concatenate([part[index] for index in order]) for part in parts]
    return [*restored, np.concatenate(counts)[order]] if form is RowForm.SPARSE else restored


def _try(program: LibraryProgram, description: "ModelDescription") -> None:
    """Compute two small texts: whether the class gives what the settings promise shows only then."""
    batch = Batch.of([TokenSequence.of([0] * length) for length in (2, 3)])
    try:
        with torch.inference_mode():
            rows = program(batch)[0]
    except Exception as error:
        raise UnsupportedModel(
            f"{description.directory}: transformers' model_type {description.architecture!r} fails on two "
            f"small texts: {type(error).__name__}: {error}"
        ) from error
    texts = len(batch.token_ids) if description.row_form is RowForm.TOKEN else len(batch)
    if description.row_form is not RowForm.SPARSE and rows.shape != (texts, description.dim):
        raise UnsupportedModel(
            f"{description.directory}: transformers gives rows of shape {list(rows.shape)}, where the "
            f"model's settings ask for {[texts, description.dim]}."
        )
