"""The plot of the comparison: the speed of each peer under each load."""

from pathlib import Path
from statistics import median

from bench.peers.results import Comparison, speed_ratios
from bench.peers.roster import BASE

INCHES_A_PEER, WIDTH_INCHES, DOTS_PER_INCH = 0.5, 10.0, 110

# The height that the points of one peer take, of the distance between two peers.
SPREAD = 0.6


def draw_ratios(found: Comparison, file: Path) -> bool:
    """Draw the median ratio to the base as a point, with a line from the smallest to the largest round.

    Returns `False`, without a file, if there is nothing to compare.
    """
    # pyplot would keep global state and look for a window system.
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    base = found.base()
    shown = [peer for peer in found.peers if peer.is_measured and not peer.is_wrong and peer is not base]
    if base is None or not shown:
        return False
    height = 2.0 + INCHES_A_PEER * len(shown)
    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    step = SPREAD / len(found.loads)
    for place, load in enumerate(found.loads):
        heights, ratios = [], []
        for number, peer in enumerate(shown):
            values = speed_ratios(peer, base, load)
            if values:
                heights.append(number + place * step)
                ratios.append(values)
        medians = [median(values) for values in ratios]
        spread = [
            [middle - min(values) for middle, values in zip(medians, ratios, strict=True)],
            [max(values) - middle for middle, values in zip(medians, ratios, strict=True)],
        ]
        axes.errorbar(medians, heights, xerr=spread, fmt="o", markersize=4, linewidth=0.8, label=load.name)
    axes.set_yticks([number + SPREAD / 2 for number in range(len(shown))], [peer.name for peer in shown])
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"speed as a multiple of {BASE} (to the right: faster)")
    axes.grid(visible=True, axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, fontsize=7)
    figure.savefig(file)
    return True
