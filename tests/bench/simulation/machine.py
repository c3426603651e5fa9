"""The machine of the simulation: the time of calls and of Python code, and the cores that run them.

What is measured (`fitting`) and what is assumed:

- A call on one core takes `fixed_s + per_token_s * tokens + per_pair_s * pairs`, where the pairs of a text
  are the square of its length, times the factor of a measured call.
- With twice the cores, a call is `2 * doubling` times as fast, because all threads wait at the end of each
  operator, and short texts wait for the memory. Assumed, near what two cores give (decision 7).
- Each call reads all weights from memory once. If all calls together ask for more than the memory gives, all
  become slower. Calls on another node than that of the weights share the link between the nodes. Assumed.
- Python code (`PythonCost`) runs in one thread at a time, because of the interpreter's lock, and goes before
  calls, as the operating system prefers threads that slept. Calls share what is left of the cores; those of
  long texts, which have a low priority, get what others leave, and a tenth of their cores at least.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# The share of its cores that a call of low priority keeps beside others: Linux's weight of nice 10.
LOW_PRIORITY_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class CallCost:
    """The seconds of engine calls.

    `noise` are the ratios of measured calls to the fitted line, in the order of the calls, which took
    `noise_s` together. They are used in this order, because a machine is slower for seconds at a time.
    """

    fixed_s: float
    per_token_s: float
    per_pair_s: float
    noise: tuple[float, ...] = (1.0,)
    noise_s: float = 1.0
    doubling: float = 0.75

    def noise_at(self, now: float) -> float:
        """Return the noise of a call that begins at this time."""
        return self.noise[int(now / self.noise_s * len(self.noise)) % len(self.noise)]

    def seconds(self, lengths: Sequence[int], width: int) -> float:
        """Return the seconds of a call over texts of these lengths on `width` cores."""
        pairs = sum(length * length for length in lengths)
        alone_s = self.fixed_s + self.per_token_s * sum(lengths) + self.per_pair_s * pairs
        speed: float = (2 * self.doubling) ** math.log2(width)
        return alone_s / speed


@dataclass(frozen=True, slots=True)
class PythonCost:
    """The seconds of Python code, which holds the interpreter's lock.

    `request_s` is the event loop's time for a request, half of it before it enters the queue. `turn_s` is the
    time of a lane between two calls. `wake_s` passes until a thread that is notified runs.
    """

    request_s: float
    turn_s: float
    wake_s: float = 50e-6


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores, with what their calls and their Python code take.

    `nodes` is the number of NUMA nodes, `memory_bytes_s` what the memory of one node gives in a second, and
    `link_bytes_s` what passes between two nodes. `weight_bytes` are read by each call.
    """

    cores: int
    call: CallCost
    python: PythonCost
    nodes: int = 1
    weight_bytes: float = 45e6
    memory_bytes_s: float = math.inf
    link_bytes_s: float = math.inf

    def memory_share(self, wanted_bytes_s: float) -> float:
        """Return the share of their speed that calls keep which read so much in a second."""
        if wanted_bytes_s <= 0:
            return 1.0
        remote = wanted_bytes_s * (self.nodes - 1) / self.nodes
        own = self.memory_bytes_s / wanted_bytes_s  # the weights are in the memory of one node
        return min(1.0, own, self.link_bytes_s / remote if remote else 1.0)
