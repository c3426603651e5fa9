"""A DistilBERT that classifies, texts of exact length for it, and transformers' pipeline over it."""

import random
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.sample_texts import prose_words

TASK = "text-classification"
SPECIAL_TOKENS = 2  # [CLS] and [SEP]
LOGITS, SPREAD = (1.0, -1.0), 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """The best label of a text, and its score."""

    label: str
    score: float


def save_classifier(folder: Path, *, seed: int, **sizes: Any) -> Path:
    """A `DistilBertForSequenceClassification` of random weights, saved with its tokenizer; returns `folder`.

    Without `sizes`, which override entries of its config, it has the shape of distilbert-base-uncased. The
    tokenizer is the embedded model's, which has the same 30,522 pieces.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.manual_seed(seed)
        config = transformers.DistilBertConfig(**sizes)
        model = transformers.DistilBertForSequenceClassification(config).eval()
        tokenizer = transformers.DistilBertTokenizer.from_pretrained(
            locate_model().directory, model_max_length=config.max_position_embeddings
        )
        _spread_scores(model, tokenizer)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _spread_scores(model: Any, tokenizer: Any) -> None:
    """Scale the head so that texts differ: as it starts, they all score alike.

    As in a model that has learnt, a text's logits are apart: `LOGITS` on average, give or take `SPREAD`.
    """
    import torch

    ids = torch.randint(1_000, 30_000, (32, 16))  # words and parts of words
    ids[:, 0], ids[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        scale = SPREAD / logits.std(dim=0).mean()
        model.classifier.weight *= scale
        model.classifier.bias.copy_(torch.tensor(LOGITS) - logits.mean(dim=0) * scale)


def load_pipeline(model: Path) -> Any:
    """The pipeline as most people make it: nothing is set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        return transformers.pipeline(TASK, model=str(model))


def make_texts(seed: int, length: int, count: int) -> list[str]:
    """Texts of words that are one token each: each text has `length` tokens, special ones included."""
    vocabulary = Tokenizer.load(describe_model(locate_model()))
    words = sorted({word for word in prose_words() if word.isascii() and word.isalpha() and word.islower()})
    whole = [
        word
        for word, ids in zip(words, vocabulary.encode(words), strict=True)
        if len(ids) == 1 + SPECIAL_TOKENS
    ]
    chance = random.Random(f"{seed} {length}")
    return [" ".join(chance.choices(whole, k=length - SPECIAL_TOKENS)) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Inputs:
    """A model's directory, texts by their length in tokens, and what the pipeline says of each of them."""

    model: Path
    texts: Mapping[int, Sequence[str]]
    answers: Mapping[str, Answer] = field(repr=False)


def make_inputs(model: Path, texts: Mapping[int, Sequence[str]]) -> Inputs:
    """Ask the pipeline about each text. Raises `AssertionError` for one that has another length."""
    pipeline = load_pipeline(model)
    ours = Tokenizer.load(describe_model(locate_model(model)))
    answers = {}
    for length, group in texts.items():
        for text, sequence in zip(group, ours.encode(group), strict=True):
            theirs = pipeline.tokenizer(text)["input_ids"]
            assert theirs == sequence.token_ids.tolist(), f"a text of {length} tokens is read in two ways"
            assert len(theirs) == length, f"a text of {len(theirs)} tokens should have {length}"
            answers[text] = Answer(**pipeline(text)[0])
    return Inputs(model, texts, answers)


class PipelineCalls:
    """The pipeline, called with one text after the other."""

    def __init__(self, model: Path, *, seconds: float) -> None:
        self.pipeline = load_pipeline(model)
        self.seconds = seconds

    def measure(self, texts: Sequence[str]) -> float:
        """Texts per second, over `seconds` and to the end of the call that runs then."""
        calls = 0
        began = time.perf_counter()
        while time.perf_counter() - began < self.seconds:
            self.pipeline(texts[calls % len(texts)])
            calls += 1
        return calls / (time.perf_counter() - began)
