"""What a task model has on top of its encoder."""

from dataclasses import dataclass
from enum import StrEnum


class HeadKind(StrEnum):
    """Which of a family's heads."""

    SEQUENCE = "sequence"  # logits for a text or a pair: `Family.classify`
    TOKENS = "tokens"  # logits for each token: `Family.classify_tokens`
    VOCABULARY = "vocabulary"  # logits over the vocabulary for each token: `Family.predict_tokens`
    YES_NO = "yes_no"  # logits of two tokens of the vocabulary after the last token of a text


class Activation(StrEnum):
    """What makes scores of logits."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"


@dataclass(frozen=True, slots=True)
class Head:
    """A head and how its logits are read.

    `labels` names the logits in order; `activation` is the model's own. `token_ids` are the "yes" and
    the "no" of a `YES_NO` head; the score is the share of the first.
    """

    kind: HeadKind
    labels: tuple[str, ...] = ()
    activation: Activation = Activation.IDENTITY
    token_ids: tuple[int, ...] = ()
