"""A classifier of random weights, texts of exact length for it, and transformers' pipeline over it."""

import functools
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.sample_texts import prose_words

TASK = "text-classification"
SPECIAL_TOKENS = 2  # [CLS] and [SEP]
LOGITS, SPREAD = (1.0, -1.0), 0.5

# Each architecture in the shape that it was published in; without a config, that of transformers.
SHAPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "DistilBert": {},  # distilbert-base-uncased
        "Bert": {},  # bert-base-uncased
        "Roberta": {  # roberta-base
            "vocab_size": 50_265,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        },
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The best label of a text, and its score."""

    label: str
    score: float


def save_classifier(
    folder: Path,
    *,
    seed: int,
    architecture: str = "DistilBert",
    sizes: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """A sequence classifier of transformers with random weights, saved with its tokenizer; returns `folder`.

    Without `sizes`, which override entries of its config, it has the published shape of its architecture. The
    tokenizer is the embedded model's, which has the 30,522 pieces of BERT.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.manual_seed(seed)
        config = getattr(transformers, f"{architecture}Config")(**{**SHAPES[architecture], **sizes})
        model = getattr(transformers, f"{architecture}ForSequenceClassification")(config).eval()
        kind = (
            transformers.DistilBertTokenizer if architecture == "DistilBert" else transformers.BertTokenizer
        )
        # A RoBERTa numbers its positions from the padding token's id on.
        unused = config.pad_token_id + 1 if architecture == "Roberta" else 0
        tokenizer = kind.from_pretrained(
            locate_model().directory, model_max_length=config.max_position_embeddings - unused
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
        last = getattr(model.classifier, "out_proj", model.classifier)
        last.weight *= scale
        last.bias.copy_(torch.tensor(LOGITS) - logits.mean(dim=0) * scale)


def load_pipeline(model: Path) -> Any:
    """The pipeline as most people make it: nothing is set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        return transformers.pipeline(TASK, model=str(model))


@functools.cache
def whole_words() -> Sequence[str]:
    """Words that are one token each."""
    vocabulary = Tokenizer.load(describe_model(locate_model()))
    words = sorted({word for word in prose_words() if word.isascii() and word.isalpha() and word.islower()})
    encoded = zip(words, vocabulary.encode(words), strict=True)
    return [word for word, ids in encoded if len(ids) == 1 + SPECIAL_TOKENS]


def make_texts(seed: int, length: int, count: int) -> list[str]:
    """Texts of words that are one token each: each text has `length` tokens, special ones included."""
    chance = random.Random(f"{seed} {length}")
    return [" ".join(chance.choices(whole_words(), k=length - SPECIAL_TOKENS)) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Inputs:
    """A model's directory, texts by their length in tokens, and what the pipeline says of each of them."""

    model: Path
    texts: Mapping[int, Sequence[str]]
    answers: Mapping[str, Answer] = field(repr=False)


def make_inputs(model: Path, texts: Mapping[int, Sequence[str]]) -> Inputs:
    """Ask the pipeline about each text. Raises `AssertionError` for one that has another length."""
    tokenizer = Tokenizer.load(describe_model(locate_model(model)))
    for length, group in texts.items():
        for sequence in tokenizer.encode(group):
            assert len(sequence) == length, f"a text of {len(sequence)} tokens should have {length}"
    return Inputs(model, texts, answer_texts(model, [text for group in texts.values() for text in group]))


def answer_texts(model: Path, texts: Sequence[str]) -> dict[str, Answer]:
    """Return the pipeline's answer to each text. Raises `AssertionError` if its tokens are not vecmill's."""
    pipeline = load_pipeline(model)
    ours = Tokenizer.load(describe_model(locate_model(model)))
    answers = {}
    for text, sequence in zip(texts, ours.encode(texts), strict=True):
        theirs = pipeline.tokenizer(text)["input_ids"]
        assert theirs == sequence.token_ids.tolist(), f"two tokenizers differ: {text[:60]}"
        answers[text] = Answer(**pipeline(text)[0])
    return answers
