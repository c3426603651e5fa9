"""Reads plain transformers directories, without `modules.json`, whose saved class determines the task.

    ...ForSequenceClassification    one label: rerank, more: classify
    ...ForTokenClassification       classify tokens
    HF_ColBERT                      multi-vector
    JinaForRanking                  rerank: all documents of a query in one text (`listwise_reranker`)
    any other                       embed: mean pooling, or the last token of a causal language model

Other tasks on request: sparse embeddings of a masked language model, scores of a causal language model
(`llm_reranker`). A causal language model that was published as a reranker is one without a request.

Source of the rules: `_load_default_modules` of each model class in sentence-transformers 6.2.
"""

from collections.abc import Callable
from dataclasses import replace

from vecmill.architectures.towers import PICTURE_ENCODERS
from vecmill.directory_layouts.cross_encoder import (
    classification_activation,
    describe_pair_classifier,
    read_labels,
    read_plain_template,
    read_score_activation,
)
from vecmill.directory_layouts.embedding import make_sparse
from vecmill.directory_layouts.listwise_reranker import describe_listwise_reranker, is_listwise
from vecmill.directory_layouts.llm_reranker import describe_llm_reranker, is_published_llm_reranker
from vecmill.directory_layouts.modules import MODULES_FILE
from vecmill.directory_layouts.multi_vector import describe_stanford_model
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.directory_layouts.two_towers import describe_two_towers, has_pictures
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_flag
from vecmill.models.description import ModelDescription
from vecmill.models.directory import find_file, read_object
from vecmill.models.heads import Activation, Head, HeadKind
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Pooling, PoolingMode, Splade
from vecmill.values.messages import show_name
from vecmill.values.task import Task

Describe = Callable[[ModelLocation, TransformerFolder], ModelDescription]


def describe_plain_model(location: ModelLocation, task: Task | None = None) -> ModelDescription:
    """Describe a directory with a `config.json` and no modules.

    Raises `UnsupportedModel` if the saved class cannot do `task`, `CorruptModel` if
    `config.json` is missing, or a `modules.json` that the directory needs.
    """
    lost = sorted(location.directory.glob("*_Pooling/config.json"))
    if lost and find_file(location.directory, MODULES_FILE) is None:  # which is there below an adapter
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
    _refuse_pictures_alone(location)
    folder = TransformerFolder.read(location, is_module=False)
    if has_pictures(folder) and task in (None, Task.EMBED):
        return describe_two_towers(location, folder)
    possible = _possible_tasks(location, folder)
    chosen = next(iter(possible)) if task is None else task
    if chosen not in possible:
        raise UnsupportedModel(
            f"{folder.path('config.json')}: the task {chosen} was requested, but a saved "
            f"{show_name(folder.class_name) or 'model of unknown class'} can do: {', '.join(possible)}."
        )
    description = possible[chosen](location, folder)
    if task is None and chosen is Task.EMBED and folder.class_name.endswith("ForCausalLM"):
        return replace(description, assumptions=(_assume_embedder(folder),))
    return description


def _refuse_pictures_alone(location: ModelLocation) -> None:
    """Raise `UnsupportedModel` for an encoder of pictures that was saved without one of texts."""
    model_type = str((read_object(location.directory, "config.json") or {}).get("model_type"))
    if model_type in PICTURE_ENCODERS and model_type.endswith("_vision_model"):
        raise UnsupportedModel(
            f"{location.directory} has an encoder of pictures alone, and a model embeds texts too. Serve it "
            f"beside a model of texts of the same space: text=DIRECTORY,image={location.directory}."
        )


def _possible_tasks(location: ModelLocation, folder: TransformerFolder) -> dict[Task, Describe]:
    """Return the tasks of the saved class with their describing functions, the default task first."""
    name = folder.class_name
    if name.endswith("ForSequenceClassification"):
        one_label = len(read_labels(folder.config, folder.path("config.json"))) == 1
        if one_label and is_published_llm_reranker(location, folder):
            return {Task.RERANK: describe_llm_reranker, Task.EMBED: _describe_embedder}
        rerank: dict[Task, Describe] = {Task.RERANK: _describe_reranker} if one_label else {}
        return {**rerank, Task.CLASSIFY: _describe_classifier, Task.EMBED: _describe_embedder}
    if name.endswith("ForTokenClassification"):
        return {Task.CLASSIFY_TOKENS: _describe_token_classifier, Task.EMBED: _describe_embedder}
    if is_listwise(folder):
        return {Task.RERANK: describe_listwise_reranker}
    if name == "HF_ColBERT":
        return {Task.MULTI_VECTOR: describe_stanford_model}
    if name.endswith("ForMaskedLM"):
        return {Task.EMBED: _describe_embedder, Task.SPARSE: _describe_sparse}
    if name.endswith("ForCausalLM"):
        if is_published_llm_reranker(location, folder):
            return {Task.RERANK: describe_llm_reranker, Task.EMBED: _describe_embedder}
        return {Task.EMBED: _describe_embedder, Task.RERANK: describe_llm_reranker}
    return {Task.EMBED: _describe_embedder}


def _assume_embedder(folder: TransformerFolder) -> str:
    """Return what is assumed of a language model of which nothing says what it is for."""
    other = f"If it is a reranker, request its task: --task {Task.RERANK}."
    return (
        f"{folder.directory}: nothing says what this {show_name(folder.class_name)} is for. It is served as "
        "an embedding model, and reranks by similarities of embeddings, which are no scores of a reranker. "
        f"{other if folder.encoder.judges_pairs else 'A modules.json would say how texts are pooled.'}"
    )


def _describe_embedder(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    is_language_model = folder.class_name.endswith("ForCausalLM")
    try:
        folder.refuse_chat_template()
    except UnsupportedModel as error:
        if not is_language_model:
            raise
        hint = f"If the model is a reranker, request its task: --task {Task.RERANK}."
        raise UnsupportedModel(f"{error.message} {hint}") from None
    if folder.encoder.own_stages:
        raise CorruptModel(f"{location.directory / MODULES_FILE} is missing. Download the model again.")
    is_causal = is_language_model and read_flag(folder.config, "is_causal", default=True)
    mode = PoolingMode.LAST_TOKEN if is_causal else PoolingMode.MEAN
    return replace(folder.describe(location), stages=(Pooling((mode,)),))


def _describe_reranker(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    description = describe_pair_classifier(location, folder, {})
    return replace(description, chat_template=read_plain_template(folder))


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
