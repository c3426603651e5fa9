"""Plain transformers directories, without `modules.json`: the class that was saved says the task.

    ...ForSequenceClassification    one label: rerank, more: classify
    ...ForTokenClassification       classify tokens
    HF_ColBERT                      multi-vector
    any other                       embed: the mean of all tokens, or of a causal language model the last one

Other tasks can be asked for: sparse rows of a masked language model, scores of a causal one.

Source of the rules: `_load_default_modules` in sentence-transformers 6.2, of each of its models.
"""

from collections.abc import Callable
from dataclasses import replace

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.description import ModelDescription, Task
from vecmill.models.heads import Activation, Head, HeadKind
from vecmill.models.layouts.classifier import classification_activation, read_labels
from vecmill.models.layouts.colbert import describe_stanford_model
from vecmill.models.layouts.cross_encoder import describe_pair_classifier, read_score_activation
from vecmill.models.layouts.modules import MODULES_FILE
from vecmill.models.layouts.qwen_reranker import describe_qwen_reranker
from vecmill.models.layouts.sparse import make_sparse
from vecmill.models.layouts.transformer_folder import TransformerFolder
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Pooling, PoolingMode, Splade

Describe = Callable[[ModelLocation, TransformerFolder], ModelDescription]


def describe_plain_model(location: ModelLocation, task: Task | None = None) -> ModelDescription:
    """Describe a directory with a `config.json` and no modules.

    Raises `UnsupportedModel` if the saved class cannot do `task`, `CorruptModel` if the modules were lost.
    """
    lost = sorted(location.directory.glob("*_Pooling/config.json"))
    if lost:
        # The reference would go on and pool by its default, whatever this file says.
        raise CorruptModel(
            f"{location.directory / MODULES_FILE} is missing, but {lost[0].parent.name} is there. "
            "Download the model again."
        )
    folder = TransformerFolder.read(location, is_module=False)
    possible = _possible_tasks(folder)
    chosen = next(iter(possible)) if task is None else task
    if chosen not in possible:
        raise UnsupportedModel(
            f"{folder.path('config.json')}: the task {chosen} was asked for, but a saved "
            f"{folder.class_name or 'model of unknown class'} can do: {', '.join(possible)}."
        )
    return possible[chosen](location, folder)


def _possible_tasks(folder: TransformerFolder) -> dict[Task, Describe]:
    """How each task that the saved class can do is described; the first is what it is for."""
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
    is_causal = folder.class_name.endswith("ForCausalLM") and folder.config.get("is_causal", True)
    mode = PoolingMode.LAST_TOKEN if is_causal else PoolingMode.MEAN
    return replace(folder.describe(location), stages=(Pooling((mode,)),))


def _describe_reranker(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    folder.refuse_chat_template()
    return describe_pair_classifier(location, folder, {})


def _describe_classifier(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    labels = read_labels(folder.config, folder.path("config.json"))
    # One label is a cross-encoder's score, unless it is asked for as a label.
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
