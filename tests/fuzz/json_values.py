"""JSON bodies that are nearly right: examples with values exchanged, removed, repeated and nested."""

import json
import random
from typing import Any

STRINGS = (
    "", " ", "a", "text", "query", "float", "base64", "int8", "ubinary", "left", "model/embed", "model/x",
    "\x00", "\ud800", "\u202e", "é" * 300, "x" * 3_000, "[CLS]", "../../etc/passwd", "1", "true", "NaN",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 7, 384, 101, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 1.0, 1e308, -0.0)
NAMES = (
    "input", "inputs", "texts", "query", "documents", "model", "dimensions", "encoding_format", "truncate",
    "top_n", "normalize", "prompt_name", "priority", "parameters", "raw_scores", "return_documents",
)  # fmt: skip


def draw_value(dice: random.Random, depth: int = 0) -> Any:
    """Return any JSON value."""
    kind = dice.randrange(8 if depth < 3 else 5)
    match kind:
        case 0:
            return None
        case 1:
            return dice.random() < 0.5
        case 2:
            return dice.choice(NUMBERS)
        case 3 | 4:
            return dice.choice(STRINGS)
        case 5 | 6:
            return [draw_value(dice, depth + 1) for _ in range(dice.choice([0, 1, 2, 3, 70]))]
        case _:
            return {dice.choice(NAMES): draw_value(dice, depth + 1) for _ in range(dice.randrange(4))}


def change_value(value: Any, dice: random.Random) -> Any:
    """Return `value` with one part changed."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        name = dice.choice(list(value))
        changed = {**value, name: change_value(value[name], dice)}
        if dice.random() < 0.1:
            del changed[name]
        if dice.random() < 0.2:
            changed[dice.choice(NAMES)] = draw_value(dice)
        return changed
    if isinstance(value, list) and value and dice.random() < 0.7:
        place = dice.randrange(len(value))
        return [*value[:place], change_value(value[place], dice), *value[place + dice.randrange(2) :]]
    return draw_value(dice)


def write_body(example: Any, dice: random.Random) -> bytes:
    """Return a nearly right body as JSON."""
    value = example
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        value = change_value(value, dice)
    return json.dumps(value).encode()
