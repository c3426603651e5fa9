"""What a model directory says of itself, as values. `models.layouts` reads them, without the weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.models.encoder import EncoderConfig
from vecmill.models.heads import ChatTemplate, Head, MultiVector, PairTemplate, Similarity
from vecmill.models.library import LibraryConfig
from vecmill.models.stages import Normalize, Stage
from vecmill.types import RowForm


class Task(StrEnum):
    """What a model computes from a text, or a pair of them."""

    EMBED = "embed"  # one row
    RERANK = "rerank"  # one score for a query and a document
    CLASSIFY = "classify"  # a score for each label
    CLASSIFY_TOKENS = "classify_tokens"  # a score for each label and token
    SPARSE = "sparse"  # a weight for each entry of the vocabulary, mostly zeros
    MULTI_VECTOR = "multi_vector"  # one row for each token


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model, described. Set by `describe_model`.

    `architecture` is transformers' `model_type` and `encoder` its settings; `dim` is the length of a row;
    `max_tokens` counts special tokens too; `stages` lead from hidden states to rows; `lowercase` asks for
    lower-casing before the tokenizer's own normalisation; `config` is the whole `config.json`.
    `head` is what a task model has in place of stages, or before them (`SPARSE`). `weights_files` hold the
    encoder and the head, or the first of them is an exported graph that computes both; `weights_sha256` is
    what their only file must hash to, if promised.
    `tokenizer_config` is the whole `tokenizer_config.json`. `pair_template` or `chat_template` is set for
    models that read pairs as prose, `multi_vector` for multi-vector models; `similarity` is how an embedding
    model's rows are compared. Without `special_tokens` a text
    becomes its own tokens alone, and an empty one the token `vocab_size`, whose row is zeros.
    """

    name: str
    directory: Path
    task: Task
    architecture: str
    encoder: EncoderConfig
    dim: int
    max_tokens: int
    vocab_size: int
    stages: tuple[Stage, ...]
    lowercase: bool
    truncate_left: bool
    prompts: Mapping[str, str]
    default_prompt_name: str | None
    config: Mapping[str, Any]
    tokenizer_file: Path
    weights_files: tuple[Path, ...]
    weights_sha256: str | None
    head: Head | None = None
    tokenizer_config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    special_tokens: bool = True
    pair_template: PairTemplate | None = None
    chat_template: ChatTemplate | None = None
    multi_vector: MultiVector | None = None
    similarity: Similarity = Similarity.COSINE

    @property
    def default_prompt(self) -> str:
        """What goes in front of a text where nobody asks for a prompt by name."""
        name = self.default_prompt_name
        return "" if name is None else self.prompts[name]

    @property
    def normalize(self) -> bool:
        """Whether rows have unit length."""
        return Normalize() in self.stages[-1:]

    @property
    def token_count(self) -> int:
        """How many tokens there are to embed: without special tokens one more, for texts of none."""
        return self.vocab_size + (not self.special_tokens)

    @property
    def runs_code(self) -> bool:
        """Whether its class comes with it, and whoever serves it said that it may run."""
        return isinstance(self.encoder, LibraryConfig) and self.encoder.runs_code

    @property
    def exported_graph(self) -> Path | None:
        """The ONNX graph that the model was exported to, where that is what is served."""
        first = self.weights_files[0]
        return first if first.suffix == ".onnx" else None

    @property
    def row_form(self) -> RowForm:
        """What is computed for a text."""
        if self.task is Task.SPARSE:
            return RowForm.SPARSE
        has_token_rows = self.task in (Task.CLASSIFY_TOKENS, Task.MULTI_VECTOR)
        return RowForm.TOKEN if has_token_rows else RowForm.TEXT
