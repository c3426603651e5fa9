"""The description of a model: task, encoder settings, limits, prompts and files, without its weights.

`directory_layouts` reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecmill.models.adapters import Adapter
from vecmill.models.encoder_config import EncoderConfig, TransformersConfig
from vecmill.models.heads import (
    ChatTemplate,
    Head,
    HeadKind,
    JoinedTemplate,
    ListTemplate,
    MultiVector,
    PairTemplate,
    Similarity,
    TokenHeads,
)
from vecmill.models.picture_settings import PictureSettings
from vecmill.models.stages import Normalize, OwnPooling, Stage, WeightedLayers
from vecmill.models.tied_tensors import Tie
from vecmill.requests import Purpose
from vecmill.values.embeddings import OutputShape
from vecmill.values.task import Task

LONG_TEXT_TOKENS = 512
"""The most tokens of a text that is not long. A long text has a call of its own, with attention in blocks."""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The description of one model, made by `describe_model`.

    `architecture` is transformers' `model_type`, or the registry's name for it (`name_architecture`),
    `encoder` the encoder's settings. `dim` is the number of output dimensions. `max_tokens` includes special
    tokens. `stages` turn hidden states into outputs. With `lowercase` texts are lower-cased before the
    tokenizer's own normalisation. `config` is the whole `config.json`, `tokenizer_config` the whole
    `tokenizer_config.json`. `head` replaces the stages of a task model, or precedes them (`SPARSE`).
    `weights_files` hold the encoder and the head, or begin with an exported graph that computes both.
    `weights_sha256` is the expected SHA-256 of a single weights file. `pair_template` or `chat_template` is
    set for models that read a pair as one text, `list_template` for those that read a query and all its
    documents as one text, `multi_vector` for multi-vector models, `token_heads` for embedding models that
    give sparse and multi-vector embeddings too. `router` is set for models that embed queries in another way;
    all else is then about documents. `pictures` is set for models that embed pictures too; all else is then
    about texts. `padding` is set for models whose texts are padded. `similarity` is the measure that compares
    embeddings. Without `special_tokens` no tokens are added, and an empty text becomes the token
    `vocab_size`, whose embedding is zeros. `adapter` is merged into the weights, if there is one; `base` is
    then the model that has the weights, as it is served without the adapter. `task_adapters` are those of the
    tasks of a model that serves all of them, by task; `weights_files` end with theirs. `gives_token_types`
    tells whether the tokenizer of an encoder gives token types, which classes of transformers get then.
    `assumptions` are sentences about what the directory does not say. `token_changes` is a digest of what
    changed in the tokens of texts since earlier versions, for the few models that this concerns.
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
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    special_tokens: bool = True
    pair_template: PairTemplate | JoinedTemplate | None = None
    chat_template: ChatTemplate | None = None
    list_template: ListTemplate | None = None
    multi_vector: MultiVector | None = None
    token_heads: TokenHeads | None = None
    router: "AsymmetricRoutes | None" = None
    pictures: "PictureTower | None" = None
    padding: "PaddingRule | None" = None
    similarity: Similarity = Similarity.COSINE
    adapter: Adapter | None = None
    base: "ModelDescription | None" = None
    gives_token_types: bool = False
    assumptions: tuple[str, ...] = ()
    task_adapters: Mapping[str, Adapter] = field(default_factory=dict)
    token_changes: str | None = None

    @property
    def text_sides(self) -> tuple["ModelDescription", ...]:
        """The descriptions of all encoders of texts: this one, and that of queries if there is one."""
        return (self,) if self.router is None else (self, self.router.query)

    @property
    def sides(self) -> tuple["ModelDescription", ...]:
        """The descriptions of all encoders: those of texts, and that of pictures."""
        return self.text_sides if self.pictures is None else (*self.text_sides, self.pictures.encoder)

    @property
    def default_prompt(self) -> str:
        """The prompt of texts for which the client names none."""
        name = self.default_prompt_name
        return "" if name is None else self.prompts[name]

    @property
    def normalize(self) -> bool:
        """Whether embeddings have unit length."""
        return Normalize() in self.stages[-1:]

    @property
    def normalizes_output(self) -> bool:
        """Whether engines normalise the output of the graph, instead of the graph itself.

        The embedding before the normalisation is then available too.
        """
        return self.normalize and self.task is Task.EMBED

    @property
    def graph_stages(self) -> tuple[Stage, ...]:
        """The stages after the encoder that the graph computes: all, or all but the final normalisation."""
        stages = self.stages[:-1] if self.normalizes_output else self.stages
        return stages[1:] if self.weighted_layers is not None or self.pools_itself else stages

    @property
    def pools_itself(self) -> bool:
        """Whether pooling is a part of the architecture."""
        return OwnPooling() in self.stages[:1]

    @property
    def weighted_layers(self) -> WeightedLayers | None:
        """The stage that takes the place of the encoder's last hidden state, if there is one."""
        first = next(iter(self.stages), None)
        return first if isinstance(first, WeightedLayers) else None

    @property
    def token_count(self) -> int:
        """The size of the embedding table. Without `special_tokens` it has an extra entry for empty texts."""
        return self.vocab_size + (not self.special_tokens)

    @property
    def runs_code(self) -> bool:
        """Whether the model runs its own code, which the operator has allowed."""
        return isinstance(self.encoder, TransformersConfig) and self.encoder.runs_code

    @property
    def exported_graph(self) -> Path | None:
        """The exported ONNX graph to run, if any."""
        first = self.weights_files[0]
        return first if first.suffix == ".onnx" else None

    @property
    def has_pytorch_weights(self) -> bool:
        """Whether weights are in PyTorch's files, which are pickles."""
        return any(path.suffix == ".bin" for path in self.weights_files)

    @property
    def is_table(self) -> bool:
        """Whether texts are looked up in a table of tokens."""
        return not self.encoder.has_attention

    @property
    def shares_prefixes(self) -> bool:
        """Whether texts that begin with the same tokens share their computation in vecmill's graph."""
        if self.exported_graph is not None or self.encoder.adapters:  # whose texts begin alike, and differ
            return False
        return self.encoder.is_causal and self.output_shape is not OutputShape.TOKEN

    @property
    def most_unseen(self) -> int | None:
        """The most tokens of a text that no token attends to, or `None` if no such text is ever made."""
        if self.task is not Task.MULTI_VECTOR:
            return None
        return 0 if self.multi_vector is None else self.multi_vector.most_unseen

    @property
    def has_keyless_tokens(self) -> bool:
        """Whether the window of a token may hold no token that is attended to: in an expanded query."""
        most_unseen = self.most_unseen or 0
        return any(window.may_miss_all(most_unseen) for window in self.encoder.windows)

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The ties of tensors that the model reads: those of a language model's head only if it has one."""
        kinds = (HeadKind.VOCABULARY, HeadKind.YES_NO)
        has_words = self.head is not None and self.head.kind in kinds
        return tuple(tie for tie in self.encoder.ties if has_words or not tie.of_head)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the model, its own first."""
        return (self.task,) if self.token_heads is None else (self.task, Task.SPARSE, Task.MULTI_VECTOR)

    @property
    def output_shape(self) -> OutputShape:
        """The shape of the output for a text."""
        if self.task is Task.SPARSE:
            return OutputShape.SPARSE
        is_list = self.head is not None and self.head.kind is HeadKind.LIST
        is_per_token = is_list or self.task in (Task.CLASSIFY_TOKENS, Task.MULTI_VECTOR)
        return OutputShape.TOKEN if is_per_token else OutputShape.TEXT

    @property
    def has_long_texts(self) -> bool:
        """Whether vecmill's graph of the model computes attention in blocks for long texts."""
        return self.max_tokens > LONG_TEXT_TOKENS and self.encoder.has_attention


@dataclass(frozen=True, slots=True)
class AsymmetricRoutes:
    """The two ways in which an asymmetric model embeds: documents with its encoder, queries in another way.

    `query` describes the queries: a table of tokens, or another encoder. `default` is the way of texts whose
    purpose is not stated; without it, every request must state one.
    """

    query: ModelDescription
    default: Purpose | None


@dataclass(frozen=True, slots=True)
class PaddingRule:
    """Padding of each text to `max_tokens` with `token`, before the text if `on_left`, as a part of it."""

    token: str
    on_left: bool


@dataclass(frozen=True, slots=True)
class PictureTower:
    """The encoder of the pictures of a model, and how pictures are resized for it."""

    encoder: ModelDescription
    settings: PictureSettings
