"""Tensors that are one tensor of their class in transformers: the output weights of a language model, mostly.

The files decide, not the settings alone. Two tensors that settings tie are one if the files have one of them,
or both with the same values. If both are there and differ, each is read: a head that was trained on its own
stays so. Without settings that tie them, both must be there.

Source: transformers 5.23, `tie_weights` of `modeling_utils.py` and `_tied_weights_keys` of its models.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tie:
    """Two tensors by the names that graphs ask for: `own` is `other`, unless files have both and they differ.

    `prefix` begins the names of the encoder's tensors in a model with a head. `of_head` says that `own`
    belongs to the head of a language model, so that only a model with this head has both. With `reads_copies`
    a copy of `other` under the name of `own` is read as a tensor of its own, and is part of the identity of
    the model. Without `applies` the settings do not tie the two, although an earlier version of this program
    read them as one.
    """

    own: str
    other: str
    prefix: str = ""
    of_head: bool = True
    reads_copies: bool = False
    applies: bool = True

    def partner(self, name: str) -> str:
        """Return the other one of the two names."""
        return self.other if name == self.own else self.own
