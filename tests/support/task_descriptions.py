"""A model for each task, for fake engines: the embedded model's tokenizer, and few numbers in a row."""

from dataclasses import replace

from vecmill.models import ModelDescription, Task, describe_model, locate_model
from vecmill.models.heads import Activation, Head, HeadKind

LABELS = ("O", "B-PER", "I-PER")


def describe_tasks() -> dict[Task, ModelDescription]:
    """By task; each is called `model/TASK`."""
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
