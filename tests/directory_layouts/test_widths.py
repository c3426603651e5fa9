"""A module that does not fit what comes before it is refused, and what decides its input is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from vecmill.architectures.registry import read_encoder
from vecmill.directory_layouts.modules import Module, StageReader
from vecmill.errors import CorruptModel

SIZES: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 8, "num_attention_heads": 2},
    "t5": {"d_model": 8, "d_kv": 4, "num_heads": 2},
}
BOTH = {"pooling_mode_cls_token": True, "pooling_mode_lasttoken": True}
DENSE = {"in_features": 8, "out_features": 4}
NORM = {"dimension": 5}


@pytest.mark.parametrize(
    ("kind", "modules", "told"),
    [
        ("bert", [("Pooling", {"embedding_dimension": 5})], "has 8, by hidden_size."),
        ("t5", [("Pooling", {"embedding_dimension": 5})], "has 8, by d_model."),
        (
            "bert",
            [("Pooling", {}), ("LayerNorm", NORM)],
            "has 8, by hidden_size and one pooling_mode of 0/config.json.",
        ),
        (
            "bert",
            [("Pooling", BOTH), ("LayerNorm", NORM)],
            "has 16, by pooling_mode_cls_token and pooling_mode_lasttoken of 0/config.json.",
        ),
        (
            "bert",
            [("Pooling", {"pooling_mode": ["cls", "mean"]}), ("LayerNorm", NORM)],
            "has 16, by pooling_mode of 0/config.json.",
        ),
        (
            "bert",
            [("Pooling", {}), ("Dense", DENSE), ("LayerNorm", NORM)],
            "has 4, by out_features of 1/config.json.",
        ),
    ],
)
def test_what_decides_the_width_is_named(
    kind: str, modules: list[tuple[str, dict[str, Any]]], told: str, tmp_path: Path
) -> None:
    for number, (_, config) in enumerate(modules):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "config.json").write_text(json.dumps(config))
        (tmp_path / str(number) / "model.safetensors").write_bytes(b"")
    encoder = read_encoder({"model_type": kind, **SIZES[kind]}, "config.json")
    reader = StageReader.after(tmp_path, encoder)
    with pytest.raises(CorruptModel) as raised:
        reader.read([Module(name, str(number)) for number, (name, _) in enumerate(modules)])
    assert str(raised.value).endswith(told)
