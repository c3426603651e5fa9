"""Records the answers anew: `python -m recorded.record`, or `make record`."""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recorded.configurations import CONFIGURATIONS
from recorded.serving import Answers, Configuration, ask_all

FOLDER = Path(__file__).parent / "answers"

# Headers that most answers have, and what stands for them in the files.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "<usual>": (
        "content-length: <length>",
        "content-type: application/json",
        "date: Tue, 14 Nov 2023 22:13:20 GMT",
        "request-id: <sent>",
        "x-request-id: <sent>",
    ),
    "<usual but for the length>": (
        "content-type: application/json",
        "date: Tue, 14 Nov 2023 22:13:20 GMT",
        "request-id: <sent>",
        "x-request-id: <sent>",
    ),
    "<no time>": (
        "server-timing: tokenize;dur=0.000, queue;dur=0.000, inference;dur=0.000, total;dur=0.000",
        "x-compute-time: 0.000000",
    ),
    "<no time of tei>": (
        "x-compute-time: 0",
        "x-inference-time: 0",
        "x-queue-time: 0",
        "x-tokenization-time: 0",
        "x-total-time: 0",
    ),
}
# What stands for an object that is written once for several places of a file.
REPEATED = "repeated"


def write_answers(configuration: Configuration, answers: Answers, folder: Path = FOLDER) -> None:
    """Write the recording of a configuration: an answer a line, or a file where the request names one."""
    kept = {case.name: case.file for case in configuration.cases if case.file is not None}
    lines = []
    for name, answer in answers.items():
        body = answer["body"]
        if name in kept:
            _write_file(folder / kept[name], body)
            body = {"file": kept[name]}
        lines.append(_encode({"name": name, **answer, "headers": _shorten(answer["headers"]), "body": body}))
    (folder / f"{configuration.name}.jsonl").write_text("".join(lines), "utf-8")


def read_answers(configuration: Configuration, folder: Path = FOLDER) -> Answers:
    """The recorded answers of a configuration, by the names of their requests."""
    kept = {case.name: case.file for case in configuration.cases if case.file is not None}
    answers: Answers = {}
    for line in (folder / f"{configuration.name}.jsonl").read_text("utf-8").splitlines():
        answer = json.loads(line)
        name, answer["headers"] = answer.pop("name"), _lengthen(answer["headers"])
        if name in kept:
            answer["body"] = _read_file(folder / kept[name])
        answers[name] = answer
    return answers


def _shorten(headers: list[str]) -> list[str]:
    for name, group in GROUPS.items():
        if set(group) <= set(headers):
            headers = [name, *(header for header in headers if header not in group)]
    return headers


def _lengthen(headers: list[str]) -> list[str]:
    return sorted(header for one in headers for header in GROUPS.get(one, (one,)))


def _write_file(path: Path, document: Any) -> None:
    """A line for each path and each schema, after what they have in common."""
    repeated = _find_repeated(document)
    names = {text: number for number, text in enumerate(repeated)}
    lines = [
        _encode([REPEATED, number, _refer(json.loads(text), names, is_whole=True)])
        for text, number in names.items()
    ]
    lines += [_encode([*place, _refer(part, names)]) for *place, part in _parts(document)]
    path.write_text("".join(lines), "utf-8")


def _read_file(path: Path) -> Any:
    document: dict[str, Any] = {}
    repeated: dict[int, Any] = {}
    for line in path.read_text("utf-8").splitlines():
        *place, last, part = json.loads(line)
        part = _resolve(part, repeated)
        if place == [REPEATED]:
            repeated[last] = part
            continue
        inner = document
        for key in place:
            inner = inner.setdefault(key, {})
        inner[last] = part
    return document


def _parts(document: Any) -> list[list[Any]]:
    parts: list[list[Any]] = []
    for key, value in document.items():
        if key == "components":
            parts += [
                [key, kind, name, part] for kind, named in value.items() for name, part in named.items()
            ]
        elif isinstance(value, dict):
            parts += [[key, name, part] for name, part in value.items()]
        else:
            parts.append([key, value])
    return parts


def _find_repeated(document: Any) -> list[str]:
    """Objects that stand in several places, as JSON, the smaller ones first."""
    counts = Counter(_encode(inner) for inner in _objects(document))
    return sorted(
        (text for text, count in counts.items() if count > 1 and len(text) > 60),
        key=lambda text: (len(text), text),
    )


def _objects(value: Any) -> Iterator[Any]:
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)
    if isinstance(value, dict):
        yield value


def _refer(value: Any, names: Mapping[str, int], *, is_whole: bool = False) -> Any:
    """`value` with a number in place of what is repeated, but for itself if it `is_whole`."""
    if isinstance(value, list):
        return [_refer(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    number = None if is_whole else names.get(_encode(value))
    return (
        {name: _refer(item, names) for name, item in value.items()} if number is None else {REPEATED: number}
    )


def _resolve(value: Any, repeated: Mapping[int, Any]) -> Any:
    if isinstance(value, list):
        return [_resolve(item, repeated) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {REPEATED}:
        return repeated[value[REPEATED]]
    return {name: _resolve(item, repeated) for name, item in value.items()}


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def record(names: Sequence[str]) -> None:
    """Ask the configurations of these names, or all, and write down their answers."""
    FOLDER.mkdir(exist_ok=True)
    for configuration in CONFIGURATIONS:
        if not names or configuration.name in names:
            with tempfile.TemporaryDirectory() as folder:
                write_answers(configuration, ask_all(configuration, Path(folder)))
            print(f"{configuration.name}: {len(configuration.cases)} answers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configurations", nargs="*", help="those to record; all, if none is named")
    record(parser.parse_args().configurations)
