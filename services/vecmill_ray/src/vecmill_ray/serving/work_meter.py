"""The meter of a replica's work: queued seconds, and the busy fraction since the last reading."""

from vecmill.hardware.cores import available_cores
from vecmill.values.clock import Clock, monotonic
from vecmill_ray.serving.autoscaling import BUSY, QUEUE_S
from vecmill_server.base.catalog import ServedModel
from vecmill_server.service.service import Service


class WorkMeter:
    """The numbers that a replica reports to Serve's autoscaler."""

    def __init__(self, service: Service, model: ServedModel, clock: Clock = monotonic) -> None:
        self._registry = service.metrics.registry
        self._model = model
        self._clock = clock
        self._read_at = clock()
        self._inference_s = self._total_inference_s()

    def read(self) -> dict[str, float]:
        """Return the queued seconds of work, and the busy fraction since the last call."""
        now, inference_s = self._clock(), self._total_inference_s()
        passed_s = max(now - self._read_at, 1e-6) * self._lanes
        busy = min(1.0, (inference_s - self._inference_s) / passed_s)
        self._read_at, self._inference_s = now, inference_s
        return {QUEUE_S: self._model.mill.backlog.seconds, BUSY: busy}

    @property
    def _lanes(self) -> int:
        mill = self._model.mill
        return mill.info.lanes_on(mill.config.cores or available_cores())

    def _total_inference_s(self) -> float:
        name = self._model.name
        return self._registry.get_sample_value("vecmill_inference_seconds_sum", {"model": name}) or 0.0
