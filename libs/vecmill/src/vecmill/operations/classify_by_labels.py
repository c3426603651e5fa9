"""The request for scores of labels that the request itself names: zero-shot classification.

The labels become texts, and are embedded with the inputs in one request. The score of a label is the likeness
of the two embeddings, scaled as the model was trained (`models.label_scale`).
"""

from functools import partial
from typing import cast

from vecmill.errors import InvalidRequest, UnsupportedTask, fields_renamed, items_renamed
from vecmill.models import Task
from vecmill.models.label_scale import TEXT_SCALE, LabelScale
from vecmill.operations.capabilities import require_task
from vecmill.operations.embed import embed
from vecmill.operations.embed_pictures import embed_pictures
from vecmill.operations.loaded_model import LoadedModel
from vecmill.requests import Caller, ClassifyByLabels, Embed, EmbedPictures
from vecmill.results import ClassifyResult, EmbedResult
from vecmill.values.aliases import FloatArray
from vecmill.vectors import activate_logits

PLACE = "{}"
PICTURE_TEMPLATE, TEXT_TEMPLATE = "This is a photo of {}.", "This example is {}."


async def classify_by_labels(
    loaded: LoadedModel, request: ClassifyByLabels, caller: Caller
) -> ClassifyResult:
    """Return a score for each label of each input. Raises the same errors as `Mill.run`."""
    require_task(loaded.description, Task.EMBED, asked="classify by labels")
    if not request.labels:
        raise InvalidRequest("`labels` is empty; give at least one label.", field="labels")
    loaded.limits.check_count(len(request.inputs))
    with_pictures = bool(request.pictures)
    scale = _find_scale(loaded)
    prompts = _fill_template(loaded, request, PICTURE_TEMPLATE if with_pictures else TEXT_TEMPLATE)
    inputs, count, options = (*request.inputs, *prompts), len(request.inputs), request.options
    with items_renamed(lambda item: f"input[{item}]" if item < count else f"labels[{item - count}]"):
        if with_pictures:
            found = await embed_pictures(
                loaded, EmbedPictures(inputs, normalize=True, options=options), caller
            )
        else:
            texts = cast(tuple[str, ...], inputs)
            found = await embed(loaded, Embed(texts, normalize=True, options=options), caller)
    scores = await loaded.results.run_if_large(
        partial(_score, found, count, scale, is_raw=request.raw_scores),
        count * len(prompts) * loaded.description.dim,
    )
    return ClassifyResult(request.labels, scores, found.token_count, found.timings, found.truncated)


def _find_scale(loaded: LoadedModel) -> LabelScale:
    if loaded.pictures is None:
        return TEXT_SCALE
    if loaded.pictures.scale is None:
        raise UnsupportedTask(
            f"The model {loaded.description.name} cannot classify by labels: its files have no logit_scale.",
            field="model",
        )
    return loaded.pictures.scale


def _fill_template(loaded: LoadedModel, request: ClassifyByLabels, usual: str) -> list[str]:
    """Return the text for each label, within the limits on texts."""
    template = usual if request.template is None else request.template
    places = template.count(PLACE)
    if not places:
        raise InvalidRequest("`template` must have {} in the place of the label.", field="template")
    rest = len(template) - places * len(PLACE)
    with fields_renamed(input="labels"):  # before texts of these sizes are made
        loaded.limits.check_sizes([rest + places * len(label) for label in request.labels])
    return [template.replace(PLACE, label) for label in request.labels]


def _score(found: EmbedResult, count: int, scale: LabelScale, *, is_raw: bool) -> FloatArray:
    cosines = found.embeddings[:count] @ found.embeddings[count:].T
    logits: FloatArray = (scale.factor * cosines + scale.bias).astype("float32")
    return logits if is_raw else activate_logits(logits, scale.activation)
