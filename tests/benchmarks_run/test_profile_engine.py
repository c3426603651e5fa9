"""The profile of an engine accounts for the time of its call."""

from pathlib import Path

import numpy as np
import pytest

from bench.profile_engine import HOLDERS, PROFILES, Operator, report, time_call
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.models import locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision

LAYERS = 6


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_operators_take_about_as_long_as_the_call(
    name: str, kept_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.profile_engine.CALLS", 5)
    monkeypatch.setattr("bench.profile_engine.WARM_UP", 2)
    ids = np.random.default_rng(1).integers(5, 1000, 128).tolist()
    batch = Batch.of([TokenSequence.of(ids)])
    plan = EnginePlan(name, Precision.FP32, lane_widths=(1,))
    engine = load_engine(describe_model(locate_model()), plan, cores=1, cache_dir=kept_models)
    call_s = time_call(engine, batch)
    operators = PROFILES[name](engine, Precision.FP32, batch)
    engine.close()
    # Other programs may slow one of the two down.
    assert 0.2 * call_s < sum(one.seconds for one in operators) < 5 * call_s
    assert not HOLDERS & {one.name for one in operators}
    products = [one for one in operators if one.role == "linear layers"]
    assert sum(one.count for one in products) >= 4 * LAYERS
    assert max(operators, key=lambda one: one.seconds) in products


def test_shares_are_of_all_operators() -> None:
    page = report([Operator("Gemm", 0.003, 2), Operator("Softmax", 0.001, 1)], 0.005)
    assert "| linear layers | 3.000 | 75.0% |" in page
    assert "| Softmax | attention | 1 | 1.000 | 25.0% |" in page
