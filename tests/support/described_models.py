"""Models that are described and not there, for servers of fake engines; and the rows that they give."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import hash_row
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.models.heads import Activation, Head, HeadKind, TokenHeads
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray, IntArray

LABELS = ("O", "B-PER", "I-PER")
PROMPTS = {"query": "query: ", "passage": "passage: ", "clustering": "cluster: ", "own": "own: "}


def describe_tasks() -> dict[Task, ModelDescription]:
    """A model for each task, called `model/<task>`, with the tokenizer of the embedded one."""
    plain = describe_model(locate_model())

    def of(task: Task, dim: int, head: Head | None = None) -> ModelDescription:
        return replace(plain, name=f"model/{task}", task=task, dim=dim, head=head, stages=())

    sequence, tokens = HeadKind.SEQUENCE, HeadKind.TOKENS
    return {
        Task.EMBED: of(Task.EMBED, 8),
        Task.RERANK: of(Task.RERANK, 1, Head(sequence, ("LABEL_0",), Activation.SIGMOID)),
        Task.CLASSIFY: of(Task.CLASSIFY, 3, Head(sequence, ("a", "b", "c"), Activation.SOFTMAX)),
        Task.CLASSIFY_TOKENS: of(Task.CLASSIFY_TOKENS, 3, Head(tokens, LABELS, Activation.SOFTMAX)),
        Task.SPARSE: of(Task.SPARSE, plain.vocab_size, Head(HeadKind.VOCABULARY)),
        Task.MULTI_VECTOR: of(Task.MULTI_VECTOR, 4),
    }


def describe_with_heads() -> ModelDescription:
    """An embedding model with the heads of BGE-M3, called `model/heads`."""
    plain = describe_tasks()[Task.EMBED]
    heads = TokenHeads(Path("sparse"), Path("colbert"), ("[CLS]", "[PAD]", "[UNK]"))
    return replace(plain, name="model/heads", token_heads=heads)


def describe_prompted(prompts: Mapping[str, str] = PROMPTS) -> ModelDescription:
    """The embedded model, had it these prompts."""
    return replace(describe_model(locate_model()), prompts=prompts, default_prompt_name=None)


def token_ids(text: str, *, limit: int | None = None) -> IntArray:
    """What the embedded model's tokenizer makes of a text, special tokens included."""
    return _tokenizer().encode([text])[0].token_ids[:limit]


def row_of(text: str, dim: int) -> FloatArray:
    """The row (dim,) that a fake engine gives a text."""
    return hash_row(token_ids(text), dim)


@lru_cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.load(describe_model(locate_model()))
