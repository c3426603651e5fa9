"""The references of a check: the model's own library if it is installed, else vecmill's fp32 ONNX engine.

The engine is also the reference of models that the library has no class for.

The libraries are sentence-transformers and transformers, in fp32 on the CPU:

    embed               SentenceTransformer.encode
    rerank              CrossEncoder.predict; for causal language models without sentence-transformers
                        settings, the program that their publisher describes (`llm_reranker`)
    classify            transformers' text classification pipeline; CrossEncoder.predict for models that
                        CrossEncoder saved, with the pipeline's activation if the model has no activation
    classify tokens     the softmax of the logits of transformers' class, as in its pipeline
    sparse              SparseEncoder.encode
    multi-vector        MultiVectorEncoder.encode_query and encode_document
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vecmill.engines import load_engine
from vecmill.errors import UnsupportedModel
from vecmill.models import ModelDescription, Task
from vecmill.models.fingerprint import stage_files
from vecmill.models.heads import Activation, PairTemplate
from vecmill.models.weights import PYTORCH_SUFFIXES, Weights
from vecmill.requests import Purpose
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import compute_in_groups
from vecmill.values.embeddings import SparseEmbedding
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.model_outputs import (
    CheckInput,
    CheckInputs,
    ModelOutputs,
    ModelProcessor,
    compute_singly,
    make_check_inputs,
    saved_by_transformers,
)

ComputeOutputs = Callable[[CheckInputs], ModelOutputs]

SENTENCE_TRANSFORMERS, TRANSFORMERS = "sentence_transformers", "transformers"


# Of models that no installed library computes.
OWN_REFERENCE = "vecmill's own fp32 ONNX engine, each text alone"


def reference_library(description: ModelDescription) -> str:
    """Return the package with the reference implementation of the model."""
    if saved_by_transformers(description) and (
        description.task in (Task.CLASSIFY, Task.CLASSIFY_TOKENS) or description.pair_template is not None
    ):
        return TRANSFORMERS
    return SENTENCE_TRANSFORMERS


def load_reference_implementation(
    description: ModelDescription, route: Purpose = Purpose.DOCUMENT
) -> ComputeOutputs:
    """Load the model into its reference implementation. Raises any exception of that library.

    `route` is that of all texts, if the model is asymmetric. Raises `SetupError` for PyTorch files that
    `Weights` refuses. The library never opens these files.
    """
    _refuse_other_pickles(description)
    task = None if description.router is None else route.value
    match description.task:
        case Task.EMBED:
            return _load_embedder(description, task)
        case Task.RERANK if saved_by_transformers(description) and description.pair_template is not None:
            return _load_causal_lm_reranker(description)
        case Task.CLASSIFY if saved_by_transformers(description):
            return _load_classifier(description)
        case Task.RERANK | Task.CLASSIFY:
            return _load_cross_encoder(description)
        case Task.CLASSIFY_TOKENS:
            return _load_token_classifier(description)
        case Task.SPARSE:
            return _load_sparse(description, task)
        case Task.MULTI_VECTOR:
            return _load_multi_vector(description)


def _refuse_other_pickles(description: ModelDescription) -> None:
    for side in description.text_sides:
        for path in (*side.weights_files, *stage_files(side)):
            if path.suffix in PYTORCH_SUFFIXES:
                Weights.open(path)


def _weights_options(description: ModelDescription) -> dict[str, Any]:
    """Return the options of transformers for the kind of weights, which take precedence over the settings.

    Otherwise the library could open a PyTorch file that vecmill ignores, and that was not checked.
    """
    has_pytorch_weights = any(side.has_pytorch_weights for side in description.text_sides)
    return {} if has_pytorch_weights else {"use_safetensors": True}


def _load_library(class_name: str, description: ModelDescription) -> Any:
    import sentence_transformers

    model = getattr(sentence_transformers, class_name)(
        str(description.directory),
        device="cpu",
        trust_remote_code=description.runs_code,
        model_kwargs=_weights_options(description),
    )
    return model.float().eval()


def _load_class(class_name: str, folder: Path, description: ModelDescription) -> Any:
    import torch
    import transformers

    model = getattr(transformers, class_name).from_pretrained(
        str(folder),
        dtype=torch.float32,
        trust_remote_code=description.runs_code,
        **_weights_options(description),
    )
    return model.eval()


def _load_embedder(description: ModelDescription, task: str | None) -> ComputeOutputs:
    model = _load_library("SentenceTransformer", description)

    def compute(inputs: CheckInputs) -> ModelOutputs:
        texts = [item.text for item in inputs]
        embeddings = model.encode(texts, convert_to_numpy=True, task=task)
        return tuple(np.asarray(embeddings, np.float32)[:, None])

    return compute


def _load_cross_encoder(description: ModelDescription) -> ComputeOutputs:
    model = _load_library("CrossEncoder", description)
    options = {"activation_fn": _label_activation(model)} if description.task is Task.CLASSIFY else {}

    def compute(inputs: CheckInputs) -> ModelOutputs:
        scores = np.asarray(model.predict([item.text_or_pair for item in inputs], **options), np.float32)
        return tuple(scores.reshape(len(inputs), 1, -1))

    return compute


def _label_activation(model: Any) -> Any:
    """Return the activation of a classifier; by default that of the pipeline of transformers."""
    from torch import nn

    if not isinstance(model.activation_fn, nn.Identity):
        return model.activation_fn
    problem = str(getattr(model.config, "problem_type", None))
    others = {"multi_label_classification": nn.Sigmoid(), "regression": model.activation_fn}
    return others.get(problem, nn.Softmax(dim=1))


def _load_causal_lm_reranker(description: ModelDescription) -> ComputeOutputs:
    """Load the published program of a language model that judges pairs, which scores one pair at a time."""
    import torch
    import transformers

    folder, head = description.directory, description.head
    assert head is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = _load_class("AutoModelForCausalLM", folder, description)
    divisor = 5 if head.activation is Activation.SIGMOID_OF_FIFTH else 1

    def score(item: CheckInput) -> FloatArray:
        ids = _judged_ids(description, tokenizer, item.text, item.second or "")
        with torch.inference_mode():
            logits = model(torch.tensor([ids]), logits_to_keep=1).logits[0, -1, list(head.token_ids)]
        logit = logits[0] - logits[1] if len(logits) > 1 else logits[0]
        return np.asarray(torch.sigmoid(logit / divisor)[None, None])

    return partial(_each, score)


def _judged_ids(description: ModelDescription, tokenizer: Any, query: str, document: str) -> list[int]:
    """Return the token ids that a judge reads for a pair, as its published program puts them together."""
    template = description.pair_template
    assert template is not None
    instruction = description.default_prompt or template.instruction

    def encode(*texts: str) -> list[int]:
        return [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False)]

    if isinstance(template, PairTemplate):
        query, document = query[: template.most_characters[0]], document[: template.most_characters[1]]
        if template.strips:
            query, document = query.strip(), document.strip()
        before, after = encode(template.start), encode(template.end)
        body = template.body.format(instruction=instruction, query=query, document=document)
        return before + encode(body)[: description.max_tokens - len(before) - len(after)] + after
    asked = template.instructed_query if instruction and template.instructed_query else template.query
    first = encode(asked.format(instruction=instruction, query=query))
    second = encode(template.document.format(document=document))
    before, between = encode(*template.start), encode(template.between)
    after = encode(*(part.format(instruction=instruction) for part in template.end))
    counted = [*(before if template.counts_start else []), *between]
    longest = min(
        template.longest, description.max_tokens - len(before) - len(between) - len(after) + len(counted)
    )
    first = first[: longest * 3 // 4]
    return [*before, *first, *between, *second[: longest - len(counted) - len(first)], *after]


def _load_classifier(description: ModelDescription) -> ComputeOutputs:
    import torch
    import transformers

    assert description.head is not None
    labels = description.head.labels
    pipeline = transformers.pipeline(
        "text-classification",
        str(_folder(description)),
        device="cpu",
        dtype=torch.float32,
        top_k=None,
        trust_remote_code=description.runs_code,
        model_kwargs=_weights_options(description),
    )

    def score(item: CheckInput) -> FloatArray:
        inputs = {"text": item.text}
        if item.second is not None:
            inputs["text_pair"] = item.second
        (found,) = pipeline([inputs], truncation=True, max_length=description.max_tokens)
        scores = {entry["label"]: entry["score"] for entry in found}
        return np.array([[scores[label] for label in labels]], np.float32)

    return partial(_each, score)


def _load_token_classifier(description: ModelDescription) -> ComputeOutputs:
    import torch
    import transformers

    folder = _folder(description)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = _load_class("AutoModelForTokenClassification", folder, description)

    def score(item: CheckInput) -> FloatArray:
        tokens = tokenizer(item.text, truncation=True, max_length=description.max_tokens, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**tokens).logits[0]
        return np.asarray(torch.softmax(logits, dim=-1))

    return partial(_each, score)


def _load_sparse(description: ModelDescription, task: str | None) -> ComputeOutputs:
    model = _load_library("SparseEncoder", description)

    def encode(item: CheckInput) -> SparseEmbedding:
        # One at a time: a batch would hold logits over the whole vocabulary for every token.
        found = model.encode(
            [item.text], convert_to_sparse_tensor=True, save_to_cpu=True, task=task
        ).coalesce()
        return SparseEmbedding(found.indices()[1].numpy(), found.values().numpy())

    return lambda inputs: tuple(map(encode, inputs))


def _load_multi_vector(description: ModelDescription) -> ComputeOutputs:
    model = _load_library("MultiVectorEncoder", description)
    encoders = {Purpose.QUERY: model.encode_query, Purpose.DOCUMENT: model.encode_document}

    def encode_side(inputs: CheckInputs, side: Sequence[int]) -> list[FloatArray]:
        encode = encoders[inputs[side[0]].purpose]
        embeddings = encode([inputs[index].text for index in side], convert_to_numpy=True)
        return [np.asarray(one, np.float32) for one in embeddings]

    def compute(inputs: CheckInputs) -> ModelOutputs:
        sides = [[index for index, item in enumerate(inputs) if item.purpose is side] for side in encoders]
        return tuple(compute_in_groups(filter(None, sides), lambda side: encode_side(inputs, side)))

    return compute


def _each(score: Callable[[CheckInput], FloatArray], inputs: Sequence[CheckInput]) -> ModelOutputs:
    return tuple(map(score, inputs))


def _folder(description: ModelDescription) -> Path:
    """Return the folder of the transformers model, which may be one of several modules."""
    return description.weights_files[0].parent


class Reference(Protocol):
    """A source of reference outputs."""

    @property
    def name(self) -> str:
        """The name for reports."""
        ...

    def outputs_for(self, inputs: CheckInputs) -> ModelOutputs:
        """Return the outputs for `inputs`, in order."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedReference:
    """A reference with its model in memory. Satisfies `Reference`."""

    name: str
    compute: ComputeOutputs

    def outputs_for(self, inputs: CheckInputs) -> ModelOutputs:
        """Compute the outputs for `inputs`, in order."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own code
            return self.compute(inputs)


@dataclass(frozen=True, slots=True)
class StoredReference:
    """The stored outputs of a reference, for several checks over the same texts. Satisfies `Reference`."""

    name: str
    inputs: CheckInputs
    outputs: ModelOutputs

    def outputs_for(self, inputs: CheckInputs) -> ModelOutputs:
        """Return the stored outputs. Raises `ValueError` if `inputs` are not the stored inputs."""
        if inputs != self.inputs:
            raise ValueError("the stored outputs belong to other inputs")
        return self.outputs


def store_outputs(
    reference: Reference, description: ModelDescription, texts: Sequence[str]
) -> StoredReference:
    """Compute and store the outputs of `reference` for a check of the model with `texts`."""
    inputs = make_check_inputs(description, texts)
    return StoredReference(reference.name, inputs, reference.outputs_for(inputs))


def has_library(description: ModelDescription) -> bool:
    """Return whether the model's own library is installed and computes the model.

    A library whose class of the same `model_type` is another architecture would give wrong outputs, so it is
    not used. Nor is one for a model with an adapter, which no library loads without peft.
    """
    sides = description.text_sides
    return find_spec(reference_library(description)) is not None and all(
        side.encoder.is_in_transformers and side.adapter is None for side in sides
    )


def load_reference(
    description: ModelDescription, cache_dir: Path, route: Purpose = Purpose.DOCUMENT
) -> LoadedReference:
    """Load the best reference that is installed for a model. Blocks while the reference loads.

    `route` is that of all texts, if the model is asymmetric. Raises `UnsupportedModel` if the model's own
    library is installed but cannot load the model.
    """
    if not has_library(description):
        return _load_own(description.text_sides[-1] if route is Purpose.QUERY else description, cache_dir)
    library = reference_library(description)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own code
        name = f"{library.replace('_', '-')} {version(library)}"
        try:
            return LoadedReference(name, load_reference_implementation(description, route))
        except Exception as error:
            raise UnsupportedModel(
                f"The reference, {name}, cannot load {description.directory}: {error}"
            ) from error


def _load_own(description: ModelDescription, cache_dir: Path) -> LoadedReference:
    engine = load_engine(description, EnginePlan(precision=Precision.FP32), cores=1, cache_dir=cache_dir)
    processor = ModelProcessor.load(description)
    return LoadedReference(
        OWN_REFERENCE,
        lambda inputs: compute_singly(engine, processor, inputs),
    )
