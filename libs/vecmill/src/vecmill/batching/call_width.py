"""The number of cores of a call: wide, on all cores, or narrow, on one core.

If an idle lane finds all cores free and at most one batch waiting, it runs the batch wide. One text is one
batch, whatever its length. Any other call is narrow. So a single request uses the whole machine, and under
load the cores work in parallel without waiting for each other. (An engine may have other widths than one core
and all cores; the smallest is narrow and the largest wide.)

Long texts. A text that takes long (`is_long`) runs wide too, but takes one core less than it computes on. A
short text that arrives meanwhile finds this core free, and the operating system shares it between the two
calls. So a long text uses the whole machine, and no short text waits for its end. One core of the process is
always free of long texts, or only borrowed by them. If so many long texts wait that they fill the other
cores, they run narrow, side by side.

Pure, except that it reads the core budget. Its lock guards everything here.
"""

from collections.abc import Sequence
from itertools import chain

from vecmill.batching.lane import Lane
from vecmill.batching.policy import Policy, is_long
from vecmill.batching.queue import Queue
from vecmill.hardware.budget import CoreBudget
from vecmill.values.engine_info import EngineInfo


class CallWidth:
    """The choice of cores for the calls of one engine; see the module docstring."""

    def __init__(
        self, info: EngineInfo, budget: CoreBudget, queue: Queue, policy: Policy, lanes: Sequence[Lane]
    ) -> None:
        self._narrow, self._wide = info.lane_widths[0], info.lane_widths[-1]
        self._budget = budget
        self._queue = queue
        self._policy = policy
        self._lanes = lanes

    def choose(self, *, was_idle: bool) -> int:
        """Return the number of cores for the next call of a lane that `was_idle`, if it has no long text."""
        alone = was_idle and self._budget.free == self._budget.total
        is_wide = alone and self._wide <= self._budget.free and self._is_one_batch()
        return self._wide if is_wide else self._narrow

    def may_run_long(self) -> bool:
        """Return whether another lane, and a core, stay free of long calls if one more begins."""
        lanes = [lane for lane in self._lanes if not lane.is_lost]
        if len(lanes) == 1:
            return True
        long_calls = sum(lane.has_long_text for lane in lanes)
        most_cores = self._budget.total - self._narrow
        return long_calls < len(lanes) - 1 and self._budget.long_cores + self._narrow <= most_cores

    def may_borrow(self) -> bool:
        """Return whether a long text, which has left its line, runs wide and takes one core less."""
        cores = self._wide - self._narrow
        if not 0 < cores <= self._budget.free or self._budget.long_cores:
            return False
        return cores == self._narrow or self._policy.count_long(self._queue) < cores // self._narrow

    def _is_one_batch(self) -> bool:
        """Return whether no more waits than one call should compute."""
        if self._queue.work_tokens <= self._policy.batch_size.tokens:
            return True
        lines = self._queue.lines.values()
        return sum(map(len, lines)) == 1 and not any(map(is_long, chain.from_iterable(lines)))
