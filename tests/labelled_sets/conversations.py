"""The set `chat`: a question of ChatterBot's English corpus (BSD licence) -> its answer."""

import yaml

from labelled_sets.archives import fetch_wheel
from labelled_sets.pairs import LabelledPairs

FEWEST_WORDS = 5


def make_conversations() -> LabelledPairs:
    """Make the set: answers of several words, each once; a question has all of its answers."""
    documents: dict[str, int] = {}
    right: dict[str, set[int]] = {}
    with fetch_wheel("chatterbot-corpus") as wheel:
        names = [
            name for name in sorted(wheel.namelist()) if name.startswith("chatterbot_corpus/data/english/")
        ]
        subjects = [yaml.safe_load(wheel.read(name)) for name in names]
    for subject in subjects:
        for turns in subject["conversations"]:
            if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns[:2]):
                continue
            question, answer = (turn.strip() for turn in [*turns, "", ""][:2])
            if len(answer.split()) >= FEWEST_WORDS:
                number = documents.setdefault(answer, len(documents))
                right.setdefault(question, set()).add(number)
    return LabelledPairs(
        tuple(documents), tuple(right), tuple(tuple(sorted(each)) for each in right.values())
    )
