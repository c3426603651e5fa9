"""The encoders of CLIP and SigLIP as ONNX graphs, exported by torch as they are published.

`text_model.onnx` and `vision_model.onnx` have the inputs and outputs of transformers.js (`scripts/extra`),
which are those of optimum with one output more or less.
"""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

IDS, PIXELS = "input_ids", "pixel_values"
NAMES = {"text": "text_model.onnx", "image": "vision_model.onnx"}


def export_towers(folder: Path, target: Path, *, reads_mask: bool = False, fixed: bool = False) -> Path:
    """Write a directory with the graphs of the model at `folder` in place of its weights.

    With `reads_mask` the graph of texts takes an attention mask. With `fixed` the graphs take one input.
    """
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors", "cache"))
    (target / "onnx").mkdir()
    export_tower(folder, target / "onnx" / NAMES["text"], "text", reads_mask=reads_mask, fixed=fixed)
    export_tower(folder, target / "onnx" / NAMES["image"], "image", fixed=fixed)
    return target


def export_tower(
    folder: Path, graph: Path, side: str, *, reads_mask: bool = False, fixed: bool = False
) -> Path:
    """Write the encoder of one side, "text" or "image", as `graph`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import transformers

        config = json.loads((folder / "config.json").read_text())
        is_clip = config["model_type"] == "clip"
        model_class = transformers.CLIPModel if is_clip else transformers.SiglipModel
        model = model_class.from_pretrained(folder, attn_implementation="eager").eval()
        output = {"text": "text_embeds", "image": "image_embeds"}[side] if is_clip else "pooler_output"
        names = [PIXELS] if side == "image" else [IDS, *(["attention_mask"] if reads_mask else [])]
        given = _examples(torch, config, side, names)
        torch.onnx.export(
            _wrap(torch, model, side, names),
            given,
            str(graph),
            input_names=names,
            output_names=[output],
            dynamic_axes=None if fixed else _free_axes(side, names, output),
            opset_version=18,
            dynamo=False,
        )
    return graph


def export_both(folder: Path, graph: Path) -> Path:
    """Write both encoders and the similarities of their outputs as one graph, as optimum does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import transformers

        config = json.loads((folder / "config.json").read_text())
        is_clip = config["model_type"] == "clip"
        model_class = transformers.CLIPModel if is_clip else transformers.SiglipModel
        model = model_class.from_pretrained(folder, attn_implementation="eager").eval()
        names = [IDS, PIXELS, "attention_mask"] if is_clip else [IDS, PIXELS]
        outputs = ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]
        ids, *mask = _examples(torch, config, "text", [IDS, "attention_mask"][: 1 + is_clip])
        (pixels,) = _examples(torch, config, "image", [PIXELS])
        sides = ("image", "text")
        free = {**_free_axes("text", names, outputs[2]), **_free_axes("image", [PIXELS], outputs[3])}
        free |= {f"logits_per_{side}": {0: f"{side}s", 1: "others"} for side in sides}

        class Both(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *given: Any) -> Any:
                found = self.model(**dict(zip(names, given, strict=True)))
                return tuple(getattr(found, name) for name in outputs)

        torch.onnx.export(
            Both(),
            (ids, pixels, *mask),
            str(graph),
            input_names=names,
            output_names=outputs,
            dynamic_axes=free,
            opset_version=18,
            dynamo=False,
        )
    return graph


def _examples(torch: Any, config: Any, side: str, names: list[str]) -> tuple[Any, ...]:
    if side == "image":
        size = config["vision_config"]["image_size"]
        return (torch.linspace(-1, 1, 2 * 3 * size * size).reshape(2, 3, size, size),)
    length = config["text_config"]["max_position_embeddings"] if config["model_type"] == "siglip" else 6
    ids = torch.arange(2 * length).reshape(2, length) % config["text_config"]["vocab_size"]
    return (ids, torch.ones_like(ids))[: len(names)]


def _free_axes(side: str, names: list[str], output: str) -> dict[str, dict[int, str]]:
    free = {0: "batch_size", 1: "sequence_length"}
    if side == "image":
        free = {0: "batch_size", 1: "num_channels", 2: "height", 3: "width"}
    return {**dict.fromkeys(names, free), output: {0: "batch_size"}}


def _wrap(torch: Any, model: Any, side: str, names: list[str]) -> Any:
    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            features = getattr(self.model, f"get_{side}_features")
            return features(**dict(zip(names, given, strict=True))).pooler_output

    return Wrapped()
