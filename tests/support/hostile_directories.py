"""Model directories that wish a server ill, and texts that do, from a seed.

A directory begins as a good model, and is then spoiled in one of the ways of `KINDS`. Some of them stay
models that load; most must be refused. No kind needs more than a few megabytes on the disk.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Spoil = Callable[[Path, random.Random], None]

FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", "model.safetensors"),
    *("1_Pooling/config.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
)
_JSON_FILES = tuple(name for name in FILES if name.endswith(".json"))
HUGE_BYTES = 10 * 2**30


def spoil_directory(directory: Path, seed: int) -> str:
    """Spoil the good model in `directory`, and return the kind. Equal seeds spoil alike."""
    draw = random.Random(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    KINDS[kind](directory, draw)
    return kind


def _choose(directory: Path, draw: random.Random, names: tuple[str, ...] = FILES) -> Path:
    return directory / draw.choice([name for name in names if (directory / name).exists()])


def _edit(path: Path, **values: Any) -> None:
    document = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**document, **values}))


def _set_class(directory: Path) -> None:
    """Let the tokenizer be read as its file says."""
    _edit(directory / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def _edit_tokenizer(directory: Path, **values: Any) -> None:
    _edit(directory / "tokenizer.json", **values)
    _set_class(directory)


def _absurd(draw: random.Random, depth: int = 2) -> Any:
    """A value that no setting has."""
    simple: list[Any] = [
        *(None, True, "", "\u0000", "../../etc/passwd", "x" * 100_000, -1, 0, 10**12, 10**400, -0.0, 1e308),
        *(float("nan"), float("inf"), [], {}, "\u202e\x1b[31m", "\ud800"),
    ]
    if depth and draw.random() < 0.3:
        inner = [_absurd(draw, depth - 1) for _ in range(draw.randint(1, 4))]
        return draw.choice([inner, {str(number): each for number, each in enumerate(inner)}])
    return draw.choice(simple)


def _change_values(directory: Path, draw: random.Random) -> None:
    path = _choose(directory, draw, _JSON_FILES)
    document = json.loads(path.read_text())
    parent: Any = document
    for _ in range(draw.randint(0, 3)):
        inner = [each for each in (parent.values() if isinstance(parent, dict) else parent) if each]
        found = [each for each in inner if isinstance(each, dict | list)]
        if not found:
            break
        parent = draw.choice(found)
    keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    for key in draw.sample(keys, min(len(keys), draw.randint(1, 3))):
        parent[key] = _absurd(draw)
    path.write_text(json.dumps(document))


def _flip_bytes(directory: Path, draw: random.Random) -> None:
    path = _choose(directory, draw)
    content = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 20)):
        content[draw.randrange(min(len(content), 20_000))] = draw.randrange(256)
    path.write_bytes(content)


def _cut_file(directory: Path, draw: random.Random) -> None:
    path = _choose(directory, draw)
    os.truncate(path, draw.choice([0, 1, 7, 8, draw.randrange(path.stat().st_size)]))


def _enlarge_file(directory: Path, draw: random.Random) -> None:
    os.truncate(_choose(directory, draw, _JSON_FILES), HUGE_BYTES)


def _replace_file(directory: Path, draw: random.Random) -> None:
    path = _choose(directory, draw)
    path.unlink()
    match draw.randrange(5):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(path.name)  # a loop
        case 3:
            path.symlink_to("/dev/zero")
        case _:
            path.symlink_to(directory / "nothing")


def _nest(directory: Path, draw: random.Random) -> None:
    depth = draw.choice([100, 10_000, 400_000])
    opening, closing = draw.choice([("[", "]"), ('{"a":', "}")])
    inner = opening * depth + ("1" if opening != "[" else "") + closing * depth
    path = _choose(directory, draw, _JSON_FILES)
    path.write_text(draw.choice([inner, f'{{"model_type": "bert", "a": {inner}}}']))


def _list_many_values(directory: Path, draw: random.Random) -> None:
    count = draw.choice([100_000, 250_000, 500_000, 900_000])
    keyed = {f"key {number}": number for number in range(count)}
    many = draw.choice([keyed, list(keyed.values()), [{}] * count])
    name, key = draw.choice(
        [
            ("config.json", "id2label"),
            ("config.json", "architectures"),
            ("tokenizer_config.json", "added_tokens_decoder"),
            ("tokenizer_config.json", "additional_special_tokens"),
            ("config_sentence_transformers.json", "prompts"),
            ("special_tokens_map.json", "additional_special_tokens"),
            ("added_tokens.json", "key"),
        ]
    )
    _edit(directory / name, **{key: many})


def _name_many_modules(directory: Path, draw: random.Random) -> None:
    path = directory / "modules.json"
    first, *others = json.loads(path.read_text())
    path.write_text(json.dumps([first, *others * draw.choice([10, 100, 1_000])]))


def _describe_many_tensors(directory: Path, draw: random.Random) -> None:
    path = directory / "model.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    end = len(data)
    count = draw.choice([20_000, 100_000, 200_000])
    if draw.random() < 0.5:
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
        header |= {f"more.{number}": empty for number in range(count)}
    else:
        header["__metadata__"] = {f"entry {number}": "x" for number in range(count)}
    written = json.dumps(header).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + data)


def _garble_header(directory: Path, draw: random.Random) -> None:
    path = directory / "model.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    name = draw.choice([name for name in header if name != "__metadata__"])
    header[name] = draw.choice(
        [
            {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 2**62]},
            {"dtype": "F32", "shape": [-1, 4], "data_offsets": [0, 16]},
            {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
            {"dtype": "F32", "shape": [], "data_offsets": [4, 0]},
            _absurd(draw),
        ]
    )
    written = json.dumps(header).encode()
    claimed = draw.choice([len(written), 2**63 - 1, 2**24, len(written) + 4])
    path.write_bytes(claimed.to_bytes(8, "little") + written + content[8 + size :])


def _backtrack(directory: Path, draw: random.Random) -> None:
    pattern = {
        "Regex": draw.choice(["(a+)+$", "(a|aa)+$", r"^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y", "(.*a){25}"])
    }
    if draw.random() < 0.5:
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        _edit_tokenizer(directory, pre_tokenizer=split)
    else:
        _edit_tokenizer(directory, normalizer={"type": "Replace", "pattern": pattern, "content": "b"})


def _add_many_tokens(directory: Path, draw: random.Random) -> None:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    count = draw.choice([100, 2_000, 50_000])
    tokens = json.loads((directory / "tokenizer.json").read_text())["added_tokens"]
    tokens += [{"id": 700 + number, "content": f"<{number}>", **flags} for number in range(count)]
    _edit_tokenizer(directory, added_tokens=tokens)


def _change_model(directory: Path, draw: random.Random) -> None:
    document = json.loads((directory / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    model = draw.choice(
        [
            {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[MISSING]"},
            {"type": "WordPiece", "vocab": dict.fromkeys(vocabulary, 0), "unk_token": "[UNK]"},
            {"type": "WordPiece", "vocab": {**vocabulary, "huge": 2**32 - 1}, "unk_token": "[UNK]"},
            {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]] * 1_000},
            {"type": "Unigram", "vocab": [["a", -1.0]] * 1_000, "unk_id": 5_000},
            {"type": "Unigram", "vocab": [], "unk_id": None},
            {"type": "WordLevel", "vocab": {}, "unk_token": "[UNK]"},
        ]
    )
    _edit_tokenizer(directory, model=model)


def _template_for_ever(directory: Path, draw: random.Random) -> None:
    config = json.loads((directory / "config.json").read_text())
    _edit(
        directory / "config.json", **{**config, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    )
    (directory / "modules.json").unlink()
    template = draw.choice(
        [
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            "{{ 'a' * 1000000000 }}",
            "{{ messages }}" * 40_000,
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "{" * 10_000,
        ]
    )
    _edit(directory / "tokenizer_config.json", chat_template=template)


def _copy_outside(directory: Path, draw: random.Random) -> None:
    path = _choose(directory, draw)
    outside = directory.parent / f"{directory.name} {path.name}"
    shutil.move(path, outside)
    path.symlink_to(outside)


def _number_far(directory: Path, draw: random.Random) -> None:
    """Give one token an id far above the others, of which each may take memory."""
    number = draw.choice([2**22, 2**27, 2**31, 2**32 - 1])
    match draw.randrange(3):
        case 0:
            model = json.loads((directory / "tokenizer.json").read_text())["model"]
            vocabulary = {**model["vocab"], draw.choice(list(model["vocab"])): number}
            _edit(directory / "tokenizer.json", model={**model, "vocab": vocabulary})
        case 1:
            _edit(directory / "added_tokens.json", far=number)
        case _:
            added = {str(number): {"content": "far"}}
            _edit(directory / "tokenizer_config.json", added_tokens_decoder=added)
    if draw.random() < 0.5:
        _set_class(directory)


KINDS: Mapping[str, Spoil] = {
    "values": _change_values,
    "bytes": _flip_bytes,
    "cut": _cut_file,
    "large": _enlarge_file,
    "replaced": _replace_file,
    "nested": _nest,
    "many values": _list_many_values,
    "many modules": _name_many_modules,
    "many tensors": _describe_many_tensors,
    "header": _garble_header,
    "backtracking": _backtrack,
    "many tokens": _add_many_tokens,
    "tokenizer": _change_model,
    "template": _template_for_ever,
    "outside": _copy_outside,
    "more values": _change_values,
    "more bytes": _flip_bytes,
    "far ids": _number_far,
}


def hostile_text(seed: int, longest: int) -> str:
    """Return a text of at most `longest` characters that is hard on a tokenizer."""
    draw = random.Random(seed)
    piece = draw.choice(_PIECES)
    size = draw.choice([30, 255, 1_000, longest // 30, longest // 3, longest])
    if draw.random() < 0.3:
        pieces = draw.choices(_PIECES, k=20)
        piece = "".join(pieces)
    text = (piece * (size // len(piece) + 1))[: max(1, size)]
    return text + draw.choice(["", "!", " ", "\u0301", "\n"])


_PIECES = (
    *("a", ".", " ", "a.", "- ", "\n", "\t", "0", "aA", "\u00e9", "e\u0301", "\u0301", "\u200d", "\ufdfa"),
    *("\u6f22", "\u6f22\u5b57", "\u3002", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U00010380", "\u0e01"),
    *(
        "[SEP]",
        "[CLS] ",
        "<s>",
        "\x00",
        "\x1b[31m",
        "\ufeff",
        "\u202e",
        "\uffff",
        "\u1100\u1161\u11a8",
        "word ",
    ),
    *("'s", "\u0130", "\u00df", "\ufb03", "\u2581", "##a", "<0x00>", "x" * 101 + " "),
)
