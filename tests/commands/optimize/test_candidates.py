"""What there is to try: every engine and precision of this machine, and what was left out, and why."""

import pytest

from support.landscape import search_space_of
from vecmill.commands.optimize.candidates import by_loading, choose_engines, leave_torch_out, list_candidates
from vecmill.engines import ENGINES
from vecmill.engines.base import EngineCapabilities
from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import EnginePlan, Precision

CPU_ONLY = {"onnx": EngineCapabilities({"cpu": (Precision.FP32, Precision.INT8)})}


def test_each_engine_and_precision_is_one_kind() -> None:
    kinds = [(plan.engine, plan.precision) for plan in search_space_of().kinds]
    assert len(kinds) == len(set(kinds)) == 10
    assert ("openvino", Precision.BF16) in kinds


def test_a_kind_is_tried_as_a_server_would_run_it_first() -> None:
    (plan, _) = list_candidates(CPU_ONLY, cores=4).kinds
    assert (plan.lane_widths, plan.max_batch_tokens) == ((1, 4), 512)


@pytest.mark.parametrize(
    ("cores", "widths"),
    [
        (1, {(1,)}),
        (2, {(1, 2), (2,)}),
        (8, {(1, 8), (8,), (2,), (4,)}),
        (6, {(1, 6), (6,), (2,)}),
    ],
)
def test_lanes_share_the_cores_in_every_even_way(cores: int, widths: set[tuple[int, ...]]) -> None:
    space = list_candidates(CPU_ONLY, cores=cores)
    assert {plan.lane_widths for plan in space.variants[space.kinds[0]]} == widths


def test_no_call_is_wider_than_this_machine_is_good_for() -> None:
    space = list_candidates(CPU_ONLY, cores=64, widest=16)
    plans = space.variants[space.kinds[0]]
    assert {plan.lane_widths for plan in plans} == {(1, 16), (16,), (2,), (4,), (8,)}


def test_what_has_to_be_made_first_is_tried_last() -> None:
    made = [plan.precision in (Precision.INT8, Precision.INT8_FAST) for plan in search_space_of().kinds]
    assert made == sorted(made)
    assert any(made)


def test_only_engines_that_round_have_roundings_to_try() -> None:
    space = search_space_of()
    multiples = {
        kind.engine: {plan.length_multiple for plan in plans} for kind, plans in space.variants.items()
    }
    assert multiples == {"onnx": {None}, "openvino": {8, 1}, "torch": {None}, "torch-compile": {None}}


def test_accelerators_have_larger_budgets_and_lanes_of_their_own() -> None:
    space = list_candidates({"onnx": EngineCapabilities({"cuda": (Precision.FP32,)})}, cores=2)
    plans = space.variants[space.kinds[0]]
    assert {plan.lane_widths for plan in plans} == {()}
    assert min(plan.max_batch_tokens or 0 for plan in plans) >= 1024


def test_plans_that_differ_in_the_budget_alone_need_one_loaded_engine() -> None:
    space = search_space_of()
    for plans in space.variants.values():
        groups = by_loading(plans)
        assert [len(group) for group in groups] == [3] * len(groups)
        assert [plan for group in groups for plan in group] == list(plans)


def test_the_safe_plan_is_the_default_engine_in_fp32() -> None:
    first = search_space_of().safe_kinds[0]
    assert (first.engine, first.precision, first.device) == ("onnx", Precision.FP32, "cpu")


def test_without_fp32_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(InvalidConfig, match="openvino"):
        list_candidates({"openvino": EngineCapabilities({"cpu": (Precision.BF16,)})}, cores=2)


def test_engines_that_are_not_installed_are_named() -> None:
    chosen, left_out = choose_engines([])
    installed = {name for name, entry in ENGINES.items() if entry.is_installed}
    assert set(chosen) == installed
    assert set(left_out) == set(ENGINES) - installed
    assert all("pip install" in reason for reason in left_out.values())


def test_the_person_may_name_the_engines() -> None:
    chosen, left_out = choose_engines(["onnx"])
    assert chosen == ["onnx"]
    assert set(left_out) == set(ENGINES) - {"onnx"}
    with pytest.raises(InvalidConfig, match="'onyx'"):
        choose_engines(["onyx"])


def test_torch_is_left_out_where_it_has_nothing_but_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = type(ENGINES["onnx"])("vecmill.engines.torch:TorchEngine", ("torch",), "torch")
    monkeypatch.setattr("vecmill.commands.optimize.candidates.ENGINES", {**ENGINES, "torch": entry})
    on_cpu = EngineCapabilities({"cpu": (Precision.FP32,)})
    kept, dropped = leave_torch_out({**CPU_ONLY, "torch": on_cpu})
    assert set(kept) == {"onnx"}
    assert "--engine" in dropped["torch"]
    on_both = EngineCapabilities({"cuda": (Precision.FP32,), "cpu": (Precision.FP32,)})
    assert leave_torch_out({**CPU_ONLY, "torch": on_both}) == ({**CPU_ONLY, "torch": on_both}, {})


def test_the_fake_engine_is_no_candidate() -> None:
    capabilities = {**CPU_ONLY, "fake": EngineCapabilities({"none": ()})}
    assert EnginePlan("fake").engine not in {
        plan.engine for plan in list_candidates(capabilities, cores=2).kinds
    }
