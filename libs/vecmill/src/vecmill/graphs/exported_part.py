"""The part of an exported graph that computes one of its outputs, for graphs of two encoders in one.

    inputs      input_ids, attention_mask, pixel_values
    outputs     text_embeds and image_embeds, of length 1, and their similarities

The names are those of optimum-onnx 0.1 (`CLIPOnnxConfig` and `SiglipOnnxConfig`).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx

PART_FILE = "part.onnx"
OF_TEXTS, OF_PICTURES = "text_embeds", "image_embeds"
_INPUTS_OF_BOTH = frozenset({"input_ids", "pixel_values"})


def is_of_both(graph: onnx.GraphProto) -> bool:
    """Return whether a graph takes texts and pictures, so that no call could compute one side alone."""
    return {value.name for value in graph.input} >= _INPUTS_OF_BOTH


def keep_part(graph: onnx.GraphProto, output: str) -> None:
    """Remove from a graph all that `output` does not depend on."""
    needed = {output}
    for node in reversed(graph.node):  # each node comes after those that it reads
        if not needed.isdisjoint(node.output):
            needed.update(_read_names(node))
    _keep(graph.node, lambda node: not needed.isdisjoint(node.output))
    for values in (graph.input, graph.initializer, graph.value_info):
        _keep(values, lambda value: value.name in needed)
    _keep(graph.output, lambda value: value.name == output)


def write_part(model: onnx.ModelProto, path: Path, folder: Path) -> Path:
    """Write a part of the graph `path` into `folder` with its weights, and return its path."""
    onnx.load_external_data_for_model(model, str(path.parent))
    target = folder / PART_FILE
    onnx.save(model, target, save_as_external_data=True, location=f"{PART_FILE}_data")
    return target


def _read_names(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for each in inner.node:
                yield from _read_names(each)
            yield from (value.name for value in inner.output)


def _keep(values: Any, is_kept: Callable[[Any], bool]) -> None:
    """Keep some values of a message, in order."""
    count = sum(map(is_kept, values))
    # To remove one value moves all after it, and a stranger's graph may have a million.
    values.sort(key=lambda value: not is_kept(value))
    del values[count:]
