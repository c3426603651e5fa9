"""What reads the inputs of a model that are more than one text: pairs, or a query with its documents."""

from dataclasses import dataclass

from vecmill.models import ModelDescription, Task
from vecmill.models.directory import load_failures
from vecmill.tokenization.listwise_inputs import ListwiseTokenizer
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class InputReaders:
    """The readers that the task of a model needs, beside its tokenizer."""

    pairs: PairTokenizer | None = None
    listwise: ListwiseTokenizer | None = None


def make_readers(description: ModelDescription, tokenizer: Tokenizer) -> InputReaders:
    """Make the readers that the task of a model needs. Raises `SetupError`."""
    with load_failures(description.tokenizer_file):
        if description.list_template is not None:
            return InputReaders(listwise=ListwiseTokenizer(tokenizer, description))
        if description.task in (Task.RERANK, Task.CLASSIFY):
            return InputReaders(pairs=PairTokenizer(tokenizer, description))
    return InputReaders()
