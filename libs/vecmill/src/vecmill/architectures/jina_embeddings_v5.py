"""Reads the `config.json` of jina-embeddings-v5 for texts: an encoder with an adapter for each task.

The small model is Qwen3, the nano model EuroBERT, whose file has an `is_decoder` of false. Each task has a
folder of its own with a LoRA adapter, as the package peft saves it.

Source: Akram et al., "jina-embeddings-v5-text", 2026 (arXiv:2602.15547); the published settings; vLLM,
`models/jina.py`, and its handling of the published `encode`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import DecoderConfig, Qwen3Config
from vecmill.architectures.llama_variants import EuroBertConfig
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_texts
from vecmill.models.stages import Normalize, Pooling, PoolingMode, Stage

DEFAULT_TASK = "retrieval"
"""The task of texts for which the client names none."""

_TASKS = (DEFAULT_TASK, "text-matching", "clustering", "classification")
_MOST_TASKS = 64
_TASK_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)  # the name of a folder
_SIDES = {"query": "Query: ", "document": "Document: "}
_PUBLISHED = frozenset({"JinaEmbeddingsV5Config", "JinaEmbeddingsV5Model"})
_LINEAR = (
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
)


@dataclass(frozen=True, kw_only=True)
class TaskAdaptersConfig(DecoderConfig):
    """The settings of a decoder with an adapter for each of `task_names`.

    Queries and documents have the adapter of the default task, and prompts of their own. The others have the
    prompt of documents. A text chooses a side or a task, so both are `adapters`.
    """

    task_names: tuple[str, ...] = ()

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        return replace(super().read(config), task_names=_read_tasks(config))

    @property
    def is_in_transformers(self) -> bool:
        """False: transformers has a class for the encoder, but not for its adapters."""
        return False

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the sides, which have the adapter of the default task, and of the tasks."""
        return (*_SIDES, *self.task_names)

    @property
    def task_of_adapter(self) -> tuple[int, ...]:
        """The number of the task of each adapter; the first is that of texts that choose none."""
        default = self.task_names.index(DEFAULT_TASK)
        return (default, *(default for _ in _SIDES), *range(len(self.task_names)))

    @property
    def token_types(self) -> int:
        """The number of adapters, and none."""
        return len(self.adapters) + 1

    @property
    def prompts(self) -> dict[str, str]:
        """The prompt of each adapter."""
        return {**dict.fromkeys(self.task_names, _SIDES["document"]), **_SIDES}

    @property
    def adapter_folders(self) -> dict[str, str]:
        """The folder of the adapter of each task."""
        return {task: f"adapters/{task}" for task in self.task_names}

    @property
    def adapted_modules(self) -> frozenset[str]:
        """The linear modules of all layers."""
        return frozenset(f"layers.{index}.{part}" for index in range(len(self.layers)) for part in _LINEAR)

    @property
    def own_stages(self) -> tuple[Stage, ...]:
        """The last token, and unit length."""
        return (Pooling((PoolingMode.LAST_TOKEN,)), Normalize())


@dataclass(frozen=True, slots=True, kw_only=True)
class JinaEmbeddingsV5Config(TaskAdaptersConfig, Qwen3Config):
    """The settings of the small model: those of Qwen3, and the tasks."""

    graph: ClassVar = "jina_embeddings_v5_graph:JinaEmbeddingsV5"
    judges_pairs: ClassVar = False
    replaced_classes: ClassVar = _PUBLISHED
    own_modules: ClassVar = frozenset({"custom_st.Transformer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JinaEmbeddingsV5EncoderConfig(TaskAdaptersConfig, EuroBertConfig):
    """The settings of the nano model: those of EuroBERT, and the tasks."""

    graph: ClassVar = "jina_embeddings_v5_graph:JinaEmbeddingsV5"
    replaced_classes: ClassVar = _PUBLISHED | EuroBertConfig.replaced_classes
    own_modules: ClassVar = frozenset({"custom_st.Transformer"})


def _read_tasks(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = read_texts(config, "task_names") or _TASKS
    if (
        len(set(names)) < len(names)
        or len(names) > _MOST_TASKS
        or not all(_TASK_NAME.fullmatch(name) and name not in _SIDES for name in names)
    ):
        raise CorruptModel(
            f"config.json: task_names must be at most {_MOST_TASKS} different names of folders, of which "
            "none is query or document."
        )
    if DEFAULT_TASK not in names:
        raise UnsupportedModel(f"config.json: task_names without {DEFAULT_TASK} is not supported.")
    return names
