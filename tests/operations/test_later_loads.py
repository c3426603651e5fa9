"""What a model that is loaded on demand leaves out when it is loaded again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from support.tiny_models import save_tiny_bert
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.mill import Mill
from vecmill.models import locate_model
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel


class MeasuredEngine(FakeEngine):
    """Counts how often its cost is measured."""

    def __init__(self, dim: int, *, parallel_calls: int | None = None) -> None:
        super().__init__(dim=dim)
        self.info = replace(self.info, parallel_calls=parallel_calls)
        self.measured = 0

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        self.measured += 1
        return super().warm_up(texts)


async def test_a_cost_that_is_known_is_not_measured_again(tmp_path: Path) -> None:
    description = describe_model(locate_model(str(save_tiny_bert(tmp_path / "model"))))
    engines = [MeasuredEngine(dim=description.dim) for _ in range(2)]
    first, second = (Mill(description, engine=engine) for engine in engines)
    async with first:
        second.cost = first.cost
        async with second:
            assert second.cost == CostModel(fixed_s=1e-4, per_token_s=1e-6)
            assert [engine.measured for engine in engines] == [1, 0]
            np.testing.assert_array_equal(await first.embed("a text"), await second.embed("a text"))


async def test_a_device_is_warmed_up_at_each_load(tmp_path: Path) -> None:
    description = describe_model(locate_model(str(save_tiny_bert(tmp_path / "model"))))
    engine = MeasuredEngine(description.dim, parallel_calls=2)
    mill = Mill(description, engine=engine)
    mill.cost = CostModel(fixed_s=1.0, per_token_s=1.0)
    async with mill:
        assert engine.measured == 1


async def test_prepared_files_are_opened_and_not_written_again(tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path / "model")
    config = MillConfig(cache_dir=tmp_path / "cache")
    mill = Mill(str(model), config)
    await mill.prepare()
    files = {path: path.stat().st_mtime_ns for path in config.cache_dir.rglob("*") if path.is_file()}  # type: ignore[union-attr]
    assert any(path.name.endswith(".onnx") for path in files)
    async with mill:
        assert (await mill.embed("a text")).shape == (1, mill.info.dim)
    assert {path: path.stat().st_mtime_ns for path in files} == files
