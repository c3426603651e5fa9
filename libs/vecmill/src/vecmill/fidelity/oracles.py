"""The models whose answers are the truth: sentence-transformers' and transformers' own, on the CPU, in fp32.

    embed               SentenceTransformer.encode
    rerank              CrossEncoder.predict; the program on Qwen3-Reranker's model card where the model is
                        a plain causal language model
    classify            transformers' text classification pipeline; CrossEncoder.predict where that saved
                        the model, and the pipeline's activation where it has none
    classify tokens     the softmax of the logits of transformers' class, as its pipeline takes it
    sparse              SparseEncoder.encode
    multi-vector        MultiVectorEncoder.encode_query and encode_document

Each function loads one of them and returns a function from questions to answers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from vecmill.fidelity.answers import Answers
from vecmill.fidelity.questions import Question, Questions, is_plain
from vecmill.models import ModelDescription, Task
from vecmill.reading import Purpose
from vecmill.types import FloatArray, SparseRow

Answer = Callable[[Questions], Answers]

SENTENCE_TRANSFORMERS, TRANSFORMERS = "sentence_transformers", "transformers"


def oracle_library(description: ModelDescription) -> str:
    """The package that knows the truth about the model."""
    if is_plain(description) and (
        description.task in (Task.CLASSIFY, Task.CLASSIFY_TOKENS) or description.pair_template is not None
    ):
        return TRANSFORMERS
    return SENTENCE_TRANSFORMERS


def load_oracle(description: ModelDescription) -> Answer:
    """Load the model into its own library. Raises whatever that raises."""
    match description.task:
        case Task.EMBED:
            return _load_embedder(description)
        case Task.RERANK if is_plain(description) and description.pair_template is not None:
            return _load_judge(description)
        case Task.RERANK:
            return _load_cross_encoder(description)
        case Task.CLASSIFY if is_plain(description):
            return _load_classifier(description)
        case Task.CLASSIFY:
            return _load_labelling_cross_encoder(description)
        case Task.CLASSIFY_TOKENS:
            return _load_token_classifier(description)
        case Task.SPARSE:
            return _load_sparse(description)
        case Task.MULTI_VECTOR:
            return _load_multi_vector(description)


def _load_library(class_name: str, description: ModelDescription) -> Any:
    import sentence_transformers

    model_class = getattr(sentence_transformers, class_name)
    return (
        model_class(str(description.directory), device="cpu", trust_remote_code=description.runs_code)
        .float()
        .eval()
    )


def _load_embedder(description: ModelDescription) -> Answer:
    model = _load_library("SentenceTransformer", description)

    def answer(questions: Questions) -> Answers:
        rows = model.encode([question.text for question in questions], convert_to_numpy=True)
        return tuple(np.asarray(rows, np.float32)[:, None])

    return answer


def _load_cross_encoder(description: ModelDescription) -> Answer:
    model = _load_library("CrossEncoder", description)

    def answer(questions: Questions) -> Answers:
        scores = model.predict([question.as_input for question in questions])
        return tuple(np.asarray(scores, np.float32).reshape(-1, 1, 1))

    return answer


def _load_judge(description: ModelDescription) -> Answer:
    """The program on the model card of Qwen3-Reranker, one pair at a time."""
    import torch
    import transformers

    folder, template = str(description.directory), description.pair_template
    assert template is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=description.runs_code
    ).eval()
    before, after = (
        tokenizer.encode(text, add_special_tokens=False) for text in (template.start, template.end)
    )
    words = [tokenizer.convert_tokens_to_ids(word) for word in ("no", "yes")]
    room = description.max_tokens - len(before) - len(after)

    def score(question: Question) -> FloatArray:
        body = (
            f"<Instruct>: {description.default_prompt or template.instruction}\n"
            f"<Query>: {question.text}\n<Document>: {question.second}"
        )
        ids = before + tokenizer.encode(body, add_special_tokens=False)[:room] + after
        with torch.inference_mode():
            logits = model(torch.tensor([ids]), logits_to_keep=1).logits[0, -1, words]
        return np.asarray(torch.softmax(logits, dim=0)[1:, None])

    return partial(_each, score)


def _load_classifier(description: ModelDescription) -> Answer:
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
    )

    def score(question: Question) -> FloatArray:
        inputs = {"text": question.text}
        if question.second is not None:
            inputs["text_pair"] = question.second
        (found,) = pipeline([inputs], truncation=True, max_length=description.max_tokens)
        scores = {entry["label"]: entry["score"] for entry in found}
        return np.array([[scores[label] for label in labels]], np.float32)

    return partial(_each, score)


def _load_labelling_cross_encoder(description: ModelDescription) -> Answer:
    from torch import nn

    model = _load_library("CrossEncoder", description)
    activation = model.activation_fn
    if isinstance(activation, nn.Identity):  # which is what such a model has if nobody chose
        problem = str(getattr(model.config, "problem_type", None))
        others = {"multi_label_classification": nn.Sigmoid(), "regression": activation}
        activation = others.get(problem, nn.Softmax(dim=1))

    def answer(questions: Questions) -> Answers:
        scores = model.predict([question.as_input for question in questions], activation_fn=activation)
        return tuple(np.asarray(scores, np.float32)[:, None])

    return answer


def _load_token_classifier(description: ModelDescription) -> Answer:
    import torch
    import transformers

    folder = str(_folder(description))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=description.runs_code
    ).eval()

    def score(question: Question) -> FloatArray:
        tokens = tokenizer(
            question.text, truncation=True, max_length=description.max_tokens, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = model(**tokens).logits[0]
        return np.asarray(torch.softmax(logits, dim=-1))

    return partial(_each, score)


def _load_sparse(description: ModelDescription) -> Answer:
    model = _load_library("SparseEncoder", description)

    def encode(question: Question) -> SparseRow:
        # One at a time: a batch has logits for every token over the whole vocabulary.
        row = model.encode([question.text], convert_to_sparse_tensor=True, save_to_cpu=True).coalesce()
        return SparseRow(row.indices()[1].numpy(), row.values().numpy())

    return lambda questions: tuple(map(encode, questions))


def _load_multi_vector(description: ModelDescription) -> Answer:
    model = _load_library("MultiVectorEncoder", description)
    encoders = {Purpose.QUERY: model.encode_query, Purpose.DOCUMENT: model.encode_document}

    def answer(questions: Questions) -> Answers:
        found: dict[int, FloatArray] = {}
        for side, encode in encoders.items():
            places = [index for index, question in enumerate(questions) if question.side is side]
            if places:
                rows = encode([questions[index].text for index in places], convert_to_numpy=True)
                found |= zip(places, (np.asarray(one, np.float32) for one in rows), strict=True)
        return tuple(found[index] for index in range(len(questions)))

    return answer


def _each(score: Callable[[Question], FloatArray], questions: Sequence[Question]) -> Answers:
    return tuple(map(score, questions))


def _folder(description: ModelDescription) -> Any:
    """Where transformers finds the model, which may be one module of several."""
    return description.weights_files[0].parent
