"""Which plans there are to try on this machine.

A *kind* is an engine on a device in a precision: it decides the accuracy. A kind's variants differ in lanes,
token budget and rounding of lengths, which decide the speed alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vecmill.engines import ENGINES
from vecmill.engines.base import Survey
from vecmill.errors import InvalidConfig
from vecmill.plan import DEFAULT_BATCH_TOKENS, DEFAULT_ENGINE, EnginePlan, Precision

CPU = "cpu"

# Their weights may take so long to make that nothing else would be tried if they came first.
MADE_AT_FIRST_START = frozenset({Precision.INT8, Precision.INT8_FAST})

# Tokens of one engine call: what fits a core's cache, and half and twice as much. Accelerators want more.
CPU_BUDGETS = (DEFAULT_BATCH_TOKENS, DEFAULT_BATCH_TOKENS // 2, DEFAULT_BATCH_TOKENS * 2)
ACCELERATOR_BUDGETS = (4096, 1024, 16384)


@dataclass(frozen=True, slots=True)
class Space:
    """What there is to try.

    `kinds` has one plan for each kind, with the settings that an engine is likeliest to be best with, and
    `variants` all plans of a kind, by the kind's plan. `left_out` says of engines why they are not tried.
    """

    kinds: tuple[EnginePlan, ...]
    variants: Mapping[EnginePlan, tuple[EnginePlan, ...]]
    left_out: Mapping[str, str]

    @property
    def safe_kinds(self) -> tuple[EnginePlan, ...]:
        """Those that others may be compared with: fp32, the default engine on the processor first."""
        exact = [plan for plan in self.kinds if plan.precision is Precision.FP32]
        return tuple(sorted(exact, key=lambda plan: (plan.engine != DEFAULT_ENGINE, plan.device != CPU)))


def list_candidates(
    surveys: Mapping[str, Survey],
    *,
    cores: int,
    widest: int | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Space:
    """The candidates of the engines that were surveyed, for calls on up to `widest` of the cores.

    Raises `InvalidConfig` if none computes in fp32.
    """
    kinds: list[EnginePlan] = []
    variants: dict[EnginePlan, tuple[EnginePlan, ...]] = {}
    for engine, survey in surveys.items():
        for device, precisions in survey.devices.items():
            for precision in precisions:
                bare = EnginePlan(engine, precision, device)
                first, *others = _vary(bare, survey.length_multiples, cores, widest or cores)
                kinds.append(first)
                variants[first] = (first, *others)
    kinds.sort(key=lambda plan: plan.precision in MADE_AT_FIRST_START)
    space = Space(tuple(kinds), variants, dict(left_out or {}))
    if not space.safe_kinds:
        raise InvalidConfig(
            "None of the engines that may be tried computes in fp32, which the others are compared with: "
            f"{', '.join(surveys) or 'none is installed'}. Allow the {DEFAULT_ENGINE} engine."
        )
    return space


def choose_engines(wanted: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The engines to survey, and why the others are left out. Without `wanted`, all that are installed.

    Raises `InvalidConfig` for a name that is not in the table, and `MissingExtra` through the survey of one
    that was asked for and is not installed.
    """
    for name in wanted:
        if name not in ENGINES:
            raise InvalidConfig(
                f"There is no engine named {name!r}. Choose from: {', '.join(sorted(ENGINES))}."
            )
    chosen: list[str] = []
    left_out: dict[str, str] = {}
    for name, entry in ENGINES.items():
        if wanted and name not in wanted:
            left_out[name] = "not asked for"
        elif not wanted and not entry.is_installed:
            left_out[name] = f"not installed: pip install 'vecmill[{entry.extra}]'"
        else:
            chosen.append(name)
    return chosen, left_out


def leave_torch_out(surveys: Mapping[str, Survey]) -> tuple[dict[str, Survey], dict[str, str]]:
    """Drop the engines that need torch and find nothing but the processor.

    What is written down should be servable without torch, and torch's gain on a processor is not worth it.
    """
    dropped = {
        name
        for name, survey in surveys.items()
        if "torch" in ENGINES[name].needs and survey.devices.keys() <= {CPU}
    }
    reason = "serving with it needs torch; name it with --engine to try it all the same"
    kept = {name: survey for name, survey in surveys.items() if name not in dropped}
    return kept, dict.fromkeys(sorted(dropped), reason)


def same_loading(plan: EnginePlan) -> EnginePlan:
    """What plans have in common that need one loaded engine: all but the token budget."""
    return replace(plan, max_batch_tokens=None)


def by_loading(plans: Iterable[EnginePlan]) -> list[list[EnginePlan]]:
    """Plans in groups that one loaded engine serves, in the order of their first."""
    groups: dict[EnginePlan, list[EnginePlan]] = {}
    for plan in plans:
        groups.setdefault(same_loading(plan), []).append(plan)
    return list(groups.values())


def _vary(bare: EnginePlan, multiples: Sequence[int], cores: int, widest: int) -> list[EnginePlan]:
    """All plans of a kind, the likeliest first."""
    on_cpu = bare.device == CPU
    return [
        replace(bare, lane_widths=widths, length_multiple=multiple, max_batch_tokens=budget)
        for multiple in multiples or (None,)
        for widths in (_lane_widths(cores, widest) if on_cpu else ((),))
        for budget in (CPU_BUDGETS if on_cpu else ACCELERATOR_BUDGETS)
    ]


def _lane_widths(cores: int, widest: int) -> tuple[tuple[int, ...], ...]:
    """Narrow lanes with a wide one; one wide lane; between them, lanes of some cores.

    Narrow lanes alone are never better than with a wide one beside them: the narrow calls are the same.
    """
    if cores == 1:
        return ((1,),)
    between = [width for width in (2, 4, 8, 16, 32) if width < widest and cores % width == 0]
    return ((1, widest), (widest,), *((width,) for width in between))
