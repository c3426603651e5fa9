"""The candidate plans of this machine.

A *kind* is a combination of engine, device and precision, which determine the accuracy. The variants of a
kind differ in lanes, token budget and rounding of lengths, which affect the speed alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vecmill.engines import ENGINES, list_engine_names
from vecmill.engines.base import EngineCapabilities
from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import DEFAULT_BATCH_TOKENS, DEFAULT_ENGINE, EnginePlan, Precision
from vecmill.values.messages import pip_command

CPU = "cpu"

# Quantising the weights takes long, so these precisions are tried last.
MADE_AT_FIRST_START = frozenset({Precision.INT8, Precision.INT8_FAST})

# The tokens of one engine call: a size that fits the cache of a core, half and twice the size. Accelerators
# need more.
CPU_BUDGETS = (DEFAULT_BATCH_TOKENS, DEFAULT_BATCH_TOKENS // 2, DEFAULT_BATCH_TOKENS * 2)
ACCELERATOR_BUDGETS = (4096, 1024, 16384)


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The plans to try.

    `kinds` has one plan for each kind, with the most promising settings. `variants` maps each plan in `kinds`
    to all plans of its kind. `left_out` maps engines that are not tried to the reasons.
    """

    kinds: tuple[EnginePlan, ...]
    variants: Mapping[EnginePlan, tuple[EnginePlan, ...]]
    left_out: Mapping[str, str]

    @property
    def safe_kinds(self) -> tuple[EnginePlan, ...]:
        """The fp32 kinds, which can be the safe plan. The default engine on the CPU comes first."""
        exact = [plan for plan in self.kinds if plan.precision is Precision.FP32]
        return tuple(sorted(exact, key=lambda plan: (plan.engine != DEFAULT_ENGINE, plan.device != CPU)))


def list_candidates(
    capabilities: Mapping[str, EngineCapabilities],
    *,
    cores: int,
    widest: int | None = None,
    left_out: Mapping[str, str] | None = None,
) -> SearchSpace:
    """Return the candidates of the engines with these capabilities, for calls on up to `widest` cores.

    Raises `InvalidConfig` if no engine computes in fp32.
    """
    kinds: list[EnginePlan] = []
    variants: dict[EnginePlan, tuple[EnginePlan, ...]] = {}
    for engine, offered in capabilities.items():
        for device, precisions in offered.devices.items():
            for precision in precisions:
                bare = EnginePlan(engine, precision, device)
                first, *others = _vary(bare, offered.length_multiples, cores, widest or cores)
                kinds.append(first)
                variants[first] = (first, *others)
    kinds.sort(key=lambda plan: plan.precision in MADE_AT_FIRST_START)
    space = SearchSpace(tuple(kinds), variants, dict(left_out or {}))
    if not space.safe_kinds:
        raise InvalidConfig(
            "The reference needs an engine in fp32, and none of these engines offers fp32: "
            f"{', '.join(capabilities) or 'none is installed'}. Add --engine {DEFAULT_ENGINE}."
        )
    return space


def choose_engines(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the engines to try, by default all installed engines, and the reasons why others are left out.

    Engines in `names` are returned even if they are not installed. Raises `InvalidConfig` for an unknown
    name.
    """
    for name in names:
        if name not in ENGINES:
            raise InvalidConfig(
                f"There is no engine named {name!r}. Choose from: {', '.join(list_engine_names())}."
            )
    chosen: list[str] = []
    left_out: dict[str, str] = {}
    for name, entry in ENGINES.items():
        if names and name not in names:
            left_out[name] = "not named with --engine"
        elif not names and not entry.is_installed:
            left_out[name] = f"not installed: {pip_command('install', entry.package)}"
        else:
            chosen.append(name)
    return chosen, left_out


def leave_torch_out(
    capabilities: Mapping[str, EngineCapabilities],
) -> tuple[dict[str, EngineCapabilities], dict[str, str]]:
    """Drop the engines that need torch if they find only the CPU.

    On the CPU the speed gain of torch is too small to require torch for serving.
    """
    dropped = {
        name
        for name, offered in capabilities.items()
        if "torch" in ENGINES[name].needs and offered.devices.keys() <= {CPU}
    }
    reason = "serving with it needs torch; to try it, name it with --engine"
    kept = {name: offered for name, offered in capabilities.items() if name not in dropped}
    return kept, dict.fromkeys(sorted(dropped), reason)


def same_loading(plan: EnginePlan) -> EnginePlan:
    """Return the settings of a plan that are fixed when an engine is loaded: all except the token budget."""
    return replace(plan, max_batch_tokens=None)


def by_loading(plans: Iterable[EnginePlan]) -> list[list[EnginePlan]]:
    """Group plans that share one loaded engine, in the order of their first plans."""
    groups: dict[EnginePlan, list[EnginePlan]] = {}
    for plan in plans:
        groups.setdefault(same_loading(plan), []).append(plan)
    return list(groups.values())


def _vary(bare: EnginePlan, multiples: Sequence[int], cores: int, widest: int) -> list[EnginePlan]:
    """Return all plans of a kind, the most promising first."""
    on_cpu = bare.device == CPU
    return [
        replace(bare, lane_widths=widths, length_multiple=multiple, max_batch_tokens=budget)
        for multiple in multiples or (None,)
        for widths in (_lane_widths(cores, widest) if on_cpu else ((),))
        for budget in (CPU_BUDGETS if on_cpu else ACCELERATOR_BUDGETS)
    ]


def _lane_widths(cores: int, widest: int) -> tuple[tuple[int, ...], ...]:
    """Return the lane widths to try: narrow lanes with a wide lane, one wide lane, lanes of a few cores.

    Narrow lanes alone are never better than narrow lanes with a wide lane, since the narrow calls are the
    same.
    """
    if cores == 1:
        return ((1,),)
    between = [width for width in (2, 4, 8, 16, 32) if width < widest and cores % width == 0]
    return ((1, widest), (widest,), *((width,) for width in between))
