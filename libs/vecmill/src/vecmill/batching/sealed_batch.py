"""A batch that a lane has taken from the queue: its jobs, its cores, and its records for the observer."""

from dataclasses import dataclass

from vecmill.batching.containment import Outcomes
from vecmill.batching.ticket import Job
from vecmill.engines.base import Engine
from vecmill.errors import VecmillError
from vecmill.values.batch import Batch
from vecmill.values.clock import Clock
from vecmill.values.embeddings import Embeddings
from vecmill.values.observer import BatchRecord, BatchTimeline, EngineTimes


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Jobs that one lane computes in one call on `width` cores.

    `waits_s` holds, for each text, the seconds from admission to now. `timeline` is `None` unless the
    observer needs timelines.
    """

    jobs: list[Job]
    width: int
    waits_s: tuple[float, ...]
    timeline: BatchTimeline | None = None

    def call(self, engine: Engine, batch: Batch, clock: Clock) -> Embeddings:
        """Return the output of `engine` for `batch`, and record the time of the call."""
        if self.timeline is None:
            return engine.run(batch, width=self.width)
        began_at = clock()
        try:
            return engine.run(batch, width=self.width)
        finally:
            self.timeline.calls.append(EngineTimes(began_at, clock(), len(batch.lengths)))

    def end(self, outcomes: Outcomes, now: float) -> None:
        """Record the end of the batch, before the requests in it end."""
        if self.timeline is not None:
            self.timeline.failed_texts = sum(isinstance(one, VecmillError) for one in outcomes.outcomes)
            self.timeline.ended_at = now

    def record(self, outcomes: Outcomes, inference_s: float) -> BatchRecord:
        """Return the record for the observer."""
        return BatchRecord(
            texts=len(self.jobs),
            tokens=sum(job.tokens for job in self.jobs),
            computed_tokens=outcomes.computed_tokens,
            lane_width=self.width,
            inference_s=inference_s,
            waits_s=self.waits_s,
            timeline=self.timeline,
        )


def begin_timeline(jobs: list[Job], lane: int, width: int, now: float) -> BatchTimeline:
    """Return the timeline of a batch that is taken now. The caller holds the lock of the queue."""
    return BatchTimeline(
        lane=lane,
        width=width,
        texts=len(jobs),
        tokens=sum(job.tokens for job in jobs),
        taken_at=now,
        of_texts=tuple(job.timeline for job in jobs),
    )
