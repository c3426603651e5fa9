"""The names of plans in reports."""

from vecmill.serving_plan.accuracy import kind_of
from vecmill.values.engine_plan import EnginePlan


def describe_plan(plan: EnginePlan) -> str:
    """Return a short description: `openvino bf16, calls on 1 or 2 cores, 512 tokens, lengths in 8s`."""
    engine, device, precision = kind_of(plan)
    parts = [f"{engine} {precision or ''}".strip() + (f" on {device}" if device not in (None, "cpu") else "")]
    if plan.lane_widths:
        widths = " or ".join(map(str, plan.lane_widths))
        parts.append(f"calls on {widths} {'core' if plan.lane_widths == (1,) else 'cores'}")
    if plan.max_batch_tokens is not None:
        parts.append(f"{plan.max_batch_tokens} tokens")
    if plan.length_multiple is not None:
        parts.append(f"lengths in {plan.length_multiple}s")
    return ", ".join(parts)
