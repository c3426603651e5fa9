"""Calls of texts in groups, and of long texts, each of which is computed alone and gives way to other calls.

Graphs with attention in blocks (`graphs.softmax_attention`) require that a long text is alone in its call. A
long text fills the cores by itself, so separate calls lose no time. Its embedding is the same in any batch.

A long text uses all cores, and a short text that arrives meanwhile shares one of them with it
(`batching.scheduler`). The operating system would give each of the two half of the core. A `YieldingSession`
has a lower priority, so that the short text gets almost all of it, and the long text what is left.

Linux gives each thread a priority of its own. A new thread inherits it from the thread that starts it, and
only a privileged process may raise it again. So one thread of low priority opens the session, whose threads
inherit it, and runs all its calls. On other systems the thread has the priority of the process.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from vecmill.engines.buckets import select_texts
from vecmill.engines.session_calls import RaggedCall, Session
from vecmill.hardware.denormals import flush_denormals
from vecmill.hardware.priority import NICENESS
from vecmill.hardware.system_calls import add_niceness
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import OutputShape

Outputs = list[Any]


def is_long(batch: Batch) -> bool:
    """Return whether a text of `batch` is long."""
    return int(batch.lengths.max()) > LONG_TEXT_TOKENS


def group_long_texts(batch: Batch) -> list[IntArray]:
    """Return the indices of the texts of each call: all texts that are not long, and each long text alone."""
    if not is_long(batch):
        return [np.arange(len(batch))]
    long = batch.lengths > LONG_TEXT_TOKENS
    short = np.flatnonzero(~long)
    return [*([short] if len(short) else []), *np.flatnonzero(long)[:, None]]


def compute_groups(
    compute: Callable[[Batch], Outputs], batch: Batch, groups: Sequence[IntArray], usual: OutputShape
) -> Outputs:
    """Return the outputs of `batch` in the order of its texts, with one call of `compute` for each group.

    `usual` is the shape of the usual output.
    """
    if len(groups) == 1:
        return compute(batch)
    outputs = [compute(select_texts(batch, group.tolist())) for group in groups]
    shapes = batch.output_shapes(usual)
    if OutputShape.SPARSE in shapes:
        return _restore_order(outputs, groups, batch, OutputShape.SPARSE)
    return [
        _restore_order([[found[place]] for found in outputs], groups, batch, shape)[0]
        for place, shape in enumerate(shapes)
    ]


def _restore_order(
    outputs: Sequence[Outputs], groups: Sequence[IntArray], batch: Batch, output_shape: OutputShape
) -> Outputs:
    """Join one output of groups of texts, in the order of the texts in `batch`."""
    order = np.argsort(np.concatenate(groups), kind="stable")
    if output_shape is OutputShape.TEXT:
        return [np.concatenate([found[0] for found in outputs])[order]]
    counts = [
        found[2] if output_shape is OutputShape.SPARSE else batch.row_counts(output_shape)[group]
        for found, group in zip(outputs, groups, strict=True)
    ]
    ends = np.cumsum(np.concatenate(counts))[:-1]
    columns = 2 if output_shape is OutputShape.SPARSE else 1
    parts = [np.split(np.concatenate([found[place] for found in outputs]), ends) for place in range(columns)]
    restored = [np.concatenate([part[index] for index in order]) for part in parts]
    return [*restored, np.concatenate(counts)[order]] if output_shape is OutputShape.SPARSE else restored


def count_padded(batch: Batch) -> int:
    """Return the number of tokens that attention computes for `batch`, padding included.

    Long texts have calls of their own, as `group_long_texts` says.
    """
    lengths = batch.lengths
    longest = int(lengths.max())
    if longest <= LONG_TEXT_TOKENS:
        return len(lengths) * longest
    return sum(len(group) * int(lengths[group].max()) for group in group_long_texts(batch))


class Shrinking(Protocol):
    """The calls of a session that may have run options."""

    def run(self, names: list[str] | None, feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Compute the outputs with these `names`, by default all outputs."""
        ...


class LongTextCall(RaggedCall):
    """A call of a graph with attention in blocks, in which each long text is computed alone.

    Long texts are computed in `long_session`, which may be `session`. A long text may need more memory than
    all later calls. `shrinking` are run options that free the unused memory of the session, and `release`
    returns freed memory to the system.
    """

    def __init__(
        self,
        session: Session,
        output_shape: OutputShape,
        long_session: Shrinking,
        shrinking: Any,
        release: Callable[[], None],
        *,
        shares_prefixes: bool = False,
    ) -> None:
        super().__init__(session, shares_prefixes=shares_prefixes)
        self._release = release
        self._long_session = long_session
        self._output_shape = output_shape
        self._shrinking = shrinking

    def __call__(self, batch: Batch) -> list[Any]:
        """Compute the outputs for `batch`."""
        return compute_groups(self._compute, batch, group_long_texts(batch), self._output_shape)

    def _compute(self, batch: Batch) -> list[Any]:
        if not is_long(batch):
            return super().__call__(batch)
        try:
            return self._long_session.run(self._outputs.of(batch), self._feed(batch), self._shrinking)
        finally:
            self._release()


_Task = tuple[Callable[[], Any], Future[Any]]


class YieldingSession:
    """The session that `open_session` opens, in a thread of low priority. One call runs at a time.

    The thread ends when the object is no longer used.
    """

    def __init__(self, open_session: Callable[[], Shrinking]) -> None:
        """Open the session. Raises any error of `open_session`."""
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        # A daemon, so that a call that hangs does not keep the process.
        threading.Thread(target=_work, args=(self._tasks,), name="vecmill-long-texts", daemon=True).start()
        self._session = self._do(open_session)

    def run(self, names: list[str] | None, feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Compute the outputs with these `names`, by default all outputs, and wait for them."""
        outputs: list[Any] = self._do(lambda: self._session.run(names, feed, run_options))
        return outputs

    def _do(self, task: Callable[[], Any]) -> Any:
        future: Future[Any] = Future()
        self._tasks.put((task, future))
        return future.result()

    def __del__(self) -> None:
        self._tasks.put(None)


def _work(tasks: "SimpleQueue[_Task | None]") -> None:
    add_niceness(NICENESS)
    flush_denormals()
    while (entry := tasks.get()) is not None:
        task, future = entry
        try:
            future.set_result(task())
        except BaseException as error:  # the caller gets it, and the thread goes on
            future.set_exception(error)
        del entry, task, future  # they hold the arrays of a call
