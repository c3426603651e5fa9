"""Reads plain transformers directories, without `modules.json`, whose saved class determines the task.

    ...ForSequenceClassification    one label: rerank, more: classify
    ...ForTokenClassification       classify tokens
    HF_ColBERT                      multi-vector
    any other                       embed: mean pooling, or the last token of a causal language model

Other tasks on request: sparse embeddings of a masked language model, scores of a causal language model. These
are Qwen3 rerankers, language models that answer "yes" or "no" to the question whether a document fits a
query. They are saved as plain causal language models, which the directory does not distinguish. Prompts of
config_sentence_transformers.json, if any, are their instructions.

Sources of the rules: `_load_default_modules` of each model class in sentence-transformers 6.2; the program on
the model card of Qwen3-Reranker.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vecmill.architectures.registry import configured_architectures, name_architecture
from vecmill.directory_layouts.cross_encoder import (
    classification_activation,
    describe_pair_classifier,
    read_labels,
    read_score_activation,
)
from vecmill.directory_layouts.embedding import make_sparse
from vecmill.directory_layouts.modules import MODULES_FILE, ModelSettings
from vecmill.directory_layouts.multi_vector import describe_stanford_model
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import check_token_number, read_flag
from vecmill.models.description import ModelDescription
from vecmill.models.directory import find_file, read_object
from vecmill.models.heads import Activation, Head, HeadKind, PairTemplate
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Pooling, PoolingMode, Splade
from vecmill.models.tokenizer_file import read_vocabulary, tokenizer_limits
from vecmill.values.messages import not_supported, show_name
from vecmill.values.task import Task

Describe = Callable[[ModelLocation, TransformerFolder], ModelDescription]


def describe_plain_model(location: ModelLocation, task: Task | None = None) -> ModelDescription:
    """Describe a directory with a `config.json` and no modules.

    Raises `UnsupportedModel` if the saved class cannot do `task`, `CorruptModel` if
    `config.json` is missing, or a `modules.json` that the directory needs.
    """
    lost = sorted(location.directory.glob("*_Pooling/config.json"))
    if lost:
        # sentence-transformers would ignore this file and use its default pooling.
        raise CorruptModel(
            f"{location.directory / MODULES_FILE} is missing, but {lost[0].parent.name} is there. "
            "Download the model again."
        )
    if find_file(location.directory, "config.json") is None:
        raise CorruptModel(
            f"{location.directory} is not a model directory: config.json is missing. Name the directory that "
            "contains it."
        )
    folder = TransformerFolder.read(location, is_module=False)
    possible = _possible_tasks(folder)
    chosen = next(iter(possible)) if task is None else task
    if chosen not in possible:
        raise UnsupportedModel(
            f"{folder.path('config.json')}: the task {chosen} was requested, but a saved "
            f"{show_name(folder.class_name) or 'model of unknown class'} can do: {', '.join(possible)}."
        )
    return possible[chosen](location, folder)


def _possible_tasks(folder: TransformerFolder) -> dict[Task, Describe]:
    """Return the tasks of the saved class with their describing functions, the default task first."""
    name = folder.class_name
    if name.endswith("ForSequenceClassification"):
        one_label = len(read_labels(folder.config, folder.path("config.json"))) == 1
        rerank: dict[Task, Describe] = {Task.RERANK: _describe_reranker} if one_label else {}
        return {**rerank, Task.CLASSIFY: _describe_classifier, Task.EMBED: _describe_embedder}
    if name.endswith("ForTokenClassification"):
        return {Task.CLASSIFY_TOKENS: _describe_token_classifier, Task.EMBED: _describe_embedder}
    if name == "HF_ColBERT":
        return {Task.MULTI_VECTOR: describe_stanford_model}
    if name.endswith("ForMaskedLM"):
        return {Task.EMBED: _describe_embedder, Task.SPARSE: _describe_sparse}
    if name.endswith("ForCausalLM"):
        return {Task.EMBED: _describe_embedder, Task.RERANK: describe_qwen_reranker}
    return {Task.EMBED: _describe_embedder}


def _describe_embedder(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    folder.refuse_chat_template()
    is_causal = folder.class_name.endswith("ForCausalLM") and read_flag(
        folder.config, "is_causal", default=True
    )
    mode = PoolingMode.LAST_TOKEN if is_causal else PoolingMode.MEAN
    return replace(folder.describe(location), stages=(Pooling((mode,)),))


def _describe_reranker(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    folder.refuse_chat_template()
    return describe_pair_classifier(location, folder, {})


def _describe_classifier(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    labels = read_labels(folder.config, folder.path("config.json"))
    # `read_score_activation` treats one label as a cross-encoder's score.
    activation = (
        read_score_activation(folder, {}, labels)
        if len(labels) > 1
        else classification_activation(folder.config, labels)
    )
    head = Head(HeadKind.SEQUENCE, labels, activation)
    return replace(folder.describe(location), task=Task.CLASSIFY, head=head, dim=len(labels))


def _describe_token_classifier(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    labels = read_labels(folder.config, folder.path("config.json"))
    head = Head(HeadKind.TOKENS, labels, Activation.SOFTMAX)
    return replace(folder.describe(location), task=Task.CLASSIFY_TOKENS, head=head, dim=len(labels))


def _describe_sparse(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    folder.refuse_chat_template()
    return make_sparse(folder.describe(location), Splade())


TEMPLATE = PairTemplate(
    start=(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
        'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    ),
    body="<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
    end="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction="Given a web search query, retrieve relevant passages that answer the query",
)
_LONGEST_INPUT = 8192  # of the program on the model card


def describe_qwen_reranker(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    """Describe a Qwen3 language model as a reranker. Raises `UnsupportedModel` for other architectures."""
    if not folder.encoder.judges_pairs:
        rerankers = [name for name, found in configured_architectures().items() if found.judges_pairs]
        what = f"{folder.path('config.json')}: a {folder.class_name} as a reranker of the model_type"
        raise UnsupportedModel(not_supported(what, name_architecture(folder.config), rerankers))
    limits = tokenizer_limits(folder.encoder.vocab_size)
    tokenizer = read_object(location.directory, "tokenizer.json", limits=limits) or {}
    description = folder.describe(location)
    return ModelSettings.read(location.directory).add_prompts(
        replace(
            description,
            task=Task.RERANK,
            head=Head(
                HeadKind.YES_NO,
                activation=Activation.SIGMOID,
                token_ids=(_find_token(folder, tokenizer, "yes"), _find_token(folder, tokenizer, "no")),
            ),
            dim=1,
            max_tokens=min(description.max_tokens, _LONGEST_INPUT),
            pair_template=TEMPLATE,
        )
    )


def _find_token(folder: TransformerFolder, tokenizer: dict[str, Any], token: str) -> int:
    path = folder.path("tokenizer.json")
    vocabulary = read_vocabulary(tokenizer, path)
    token_id = vocabulary.get(token) if isinstance(vocabulary, dict) else None
    if token_id is not None:
        token_id = check_token_number(token_id, f"{path}: model.vocab.{token}")
    if token_id is None or token_id >= folder.encoder.vocab_size:
        raise UnsupportedModel(
            f"{path} has no token {token!r} below vocab_size, with which a reranker of this kind answers."
        )
    return token_id
