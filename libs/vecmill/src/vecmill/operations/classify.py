"""The `Classify` request: scores of labels for texts and pairs."""

from collections.abc import Sequence

from vecmill.models import Task
from vecmill.models.heads import Activation
from vecmill.operations.admission import Admission
from vecmill.operations.requirements import require_task
from vecmill.requests import Classify
from vecmill.results import ClassifyResult
from vecmill.tokenization.pairs import encode_texts_and_pairs
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import Embedding
from vecmill.vectors.scores import activate_logits
from vecmill.vectors.transforms import stack_embeddings


async def classify(admission: Admission, request: Classify) -> ClassifyResult:
    """Return a score for each label of each input. Raises the same errors as `Mill.run`."""
    head = admission.description.head
    # A cross-encoder is a classifier of pairs with one label, unless it judges by a template.
    tasks = (Task.CLASSIFY, Task.RERANK) if head is not None and head.labels else (Task.CLASSIFY,)
    require_task(admission.description, *tasks, asked="classify texts")
    assert head is not None
    prompt, truncation = admission.prompt(request.options), request.options.truncation
    activation = None if request.raw_scores else head.activation
    done = await admission.run(
        request,
        lambda: encode_texts_and_pairs(
            admission.tokenizer, admission.pairs, request.inputs, prompt=prompt, truncation=truncation
        ),
        sizes=[size + len(prompt) for size in request.sizes],
    )
    scores = await admission.compute(
        lambda: _score(done.embeddings, activation), len(request.inputs) * len(head.labels)
    )
    return ClassifyResult(head.labels, scores, done.token_count, done.timings, done.truncated_count)


def _score(embeddings: Sequence[Embedding], activation: Activation | None) -> FloatArray:
    logits = stack_embeddings(embeddings)
    return logits if activation is None else activate_logits(logits, activation)
