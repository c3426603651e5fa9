"""The collectors that read the state of models, queues and the log at each scrape."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from vecmill.errors import NotReady
from vecmill.mill import Mill
from vecmill_server.telemetry.metrics import definitions
from vecmill_server.telemetry.metrics.outcome import Outcome


class QueueCollector(Collector):
    """A collector that reads the queue of every model at each scrape, instead of counting events.

    The counts of one model come from one snapshot, so at every scrape the admitted texts are the sum of the
    finished and the open texts. Counters that follow events one after the other would differ by the texts
    that are between two events.
    """

    def __init__(self) -> None:
        self.mills: dict[str, Mill] = {}
        self.is_ready: dict[str, Callable[[], bool]] = {}

    def collect(self) -> Iterable[Metric]:
        admitted = definitions.TEXTS_ADMITTED.family()
        finished = definitions.TEXTS_FINISHED.family()
        joined = definitions.TEXTS_JOINED.family()
        open_texts = definitions.TEXTS_OPEN.family()
        running = definitions.TEXTS_RUNNING.family()
        texts = definitions.QUEUE_TEXTS.family()
        tokens = definitions.QUEUE_TOKENS.family()
        seconds = definitions.QUEUE_SECONDS.family()
        for model, mill in self.mills.items():
            counts = mill.text_counts
            admitted.add_metric((model,), counts.admitted)
            for outcome in Outcome:
                finished.add_metric((model, outcome), getattr(counts, outcome))
            joined.add_metric((model,), counts.joined)
            open_texts.add_metric((model,), counts.open)
            running.add_metric((model,), counts.open - counts.waiting)
            texts.add_metric((model,), counts.waiting)
            tokens.add_metric((model,), counts.waiting_tokens)
            seconds.add_metric((model,), mill.backlog.seconds)
        ready = definitions.MODEL_READY.family()
        for model, is_ready in self.is_ready.items():
            ready.add_metric((model,), is_ready())
        served = self._describe_models()
        return (admitted, finished, joined, open_texts, running, texts, tokens, seconds, ready, served)

    def devices(self) -> Iterator[str]:
        """Yield the device of each loaded model."""
        for mill in self.mills.values():
            with suppress(NotReady):
                yield mill.info.device

    def _describe_models(self) -> Metric:
        served = definitions.MODEL_INFO.family()
        for model, mill in self.mills.items():
            with suppress(NotReady):
                info, task = mill.info, mill.description.task
                served.add_metric((model, task, info.name, info.precision, info.device), 1)
        return served


class LogCollector(Collector):
    """A collector of the number of dropped log lines."""

    def __init__(self) -> None:
        self.dropped: Callable[[], int] = int  # 0

    def collect(self) -> Iterable[Metric]:
        family = definitions.LOG_LINES_DROPPED.family()
        family.add_metric((), self.dropped())
        return (family,)
