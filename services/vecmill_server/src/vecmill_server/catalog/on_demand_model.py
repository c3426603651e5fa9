"""Models that are loaded on demand: each gets a new mill when it is loaded, and loses it when it is dropped.

`check` reads the settings of a model at the start, without its weights.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Protocol

from vecmill.engines import find_engine
from vecmill.errors import InvalidConfig, LoadFailed, SetupError
from vecmill.hardware.memory import mapped_mb, return_freed_memory
from vecmill.mill import Mill
from vecmill.models import ModelDescription
from vecmill.models.weights import fp32_bytes
from vecmill.serving_plan.choice_at_load import plan_model
from vecmill.serving_plan.needs import SERVER_MB, LoadEstimate, estimate_load
from vecmill.serving_plan.outcome import list_weights
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.catalog.memory_budget import MEBIBYTE, MODELS_SHARE
from vecmill_server.catalog.residency import Residency

logger = logging.getLogger(__name__)

_UNKNOWN = LoadEstimate(0.0, 0.0, 0.0)

# So long may the settings of one model take to read, while the other loads wait. Settings of 16 MiB take 5 s.
SETTINGS_S = 30.0

# Makes the mill of a model, which is not loaded yet.
MakeMill = Callable[[ModelDescription], Mill]


class LoadObserver(Protocol):
    """Who hears of the loads of one model, on the event loop."""

    def load_began(self) -> None:
        """A load has begun."""

    def loaded(self) -> None:
        """The model is loaded."""

    def load_failed(self) -> None:
        """The load has failed."""

    def dropped(self, mill: Mill) -> None:
        """The mill of the model was closed, after a load that failed too."""


class OnDemandModel:
    """A model that `Residency` loads and drops. `served.mill` is loaded, or is the mill of the next load.

    Before each load `describe` reads the settings again, since the files may be those of another model by
    then: new weights with old settings would give vectors of no model at all.
    """

    def __init__(
        self,
        served: ServedModel,
        make_mill: MakeMill,
        observer: LoadObserver,
        describe: Callable[[], ModelDescription] | None = None,
    ) -> None:
        self.served = served
        self.estimate = _UNKNOWN
        self._is_prepared = False
        self._make_mill = make_mill
        self._describe = describe
        self._reading: asyncio.Future[ModelDescription] | None = None
        self._observer = observer

    @property
    def name(self) -> str:
        """The name of the model in requests."""
        return self.served.name

    async def check(self, residency: Residency) -> None:
        """Read the settings, estimate the memory, and let `residency` load the model from now on.

        Raises `SetupError`.
        """
        mill = self.served.mill
        description = await mill.describe()
        self.estimate = await asyncio.to_thread(_estimate, description, mill)
        held_mb, room_mb = self.estimate.held_mb, residency.memory.room_mb
        if held_mb > room_mb:
            raise InvalidConfig(
                f"The model {self.name} needs about {held_mb:.0f} MB, and --memory-budget-mib leaves "
                f"{max(0.0, room_mb):.0f} MB for models."
            )
        if self.estimate.first_peak_mb > room_mb:
            logger.warning(
                "the first load of %s may take %.0f MB, and --memory-budget-mib leaves %.0f MB for models",
                self.name,
                self.estimate.first_peak_mb,
                room_mb,
            )
        self._renew_mill()
        self.served.resident = residency.add(self)

    async def load(self) -> None:
        """Load the model. Raises `SetupError`; then nothing of it is left in memory."""
        self._observer.load_began()
        try:
            await self._read_settings()
            mill = self.served.mill
            if not self._is_prepared:
                await mill.prepare()
            await mill.start()
        except SetupError:
            self._observer.load_failed()
            await self.drop()
            raise
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            logger.exception("loading %s failed", self.name)
            self._observer.load_failed()
            await self.drop()
            raise LoadFailed(f"The model {self.name} could not be loaded.") from error
        self._is_prepared = True
        self._observer.loaded()
        logger.info("loaded %s", self.name)

    async def drop(self) -> None:
        """Close the mill, and return its memory to the system."""
        mill = self.served.mill
        try:
            await mill.close()
        except INTERRUPTIONS:
            raise
        except BaseException:
            logger.exception("closing %s failed", self.name)
        self._observer.dropped(mill)
        self._renew_mill()
        del mill
        await asyncio.to_thread(_free_memory)
        logger.info("dropped %s", self.name)

    async def _read_settings(self) -> None:
        """Make the mill of the model anew if its settings have changed. Raises `SetupError`."""
        old = self.served.mill
        if self._describe is None:
            return
        description = await self._read_within(self._describe, SETTINGS_S)
        if description == old.description:
            return
        logger.warning("the settings of %s have changed", self.name)
        new = self._make_mill(description)
        new.embedding_cache = old.embedding_cache
        self.served.mill, self._is_prepared = new, False
        self.estimate = await asyncio.to_thread(_estimate, description, new)

    async def _read_within(
        self, describe: Callable[[], ModelDescription], patience_s: float
    ) -> ModelDescription:
        """Return the description that `describe` reads. Raises `LoadFailed` if that takes too long.

        The thread that reads cannot be stopped. Until it ends, the settings are not read again.
        """
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(asyncio.to_thread(describe))
            self._reading.add_done_callback(_take_error)
            await asyncio.wait([self._reading], timeout=patience_s)
        if not self._reading.done():
            raise LoadFailed(
                f"The settings of {self.name} could not be read within {patience_s:.0f} seconds. Its files "
                "are very large, or their disk does not answer."
            )
        return self._reading.result()

    def _renew_mill(self) -> None:
        """Replace the mill by one of the same model that can be loaded."""
        old = self.served.mill
        new = self._make_mill(old.description)
        new.cost, new.embedding_cache = old.cost, old.embedding_cache
        self.served.mill = new


def make_residency(settings: ServerSettings) -> Residency | None:
    """Return what loads and drops models; `None` if all models stay loaded."""
    if settings.memory_budget_mib is None:
        return None
    budget_mb = MODELS_SHARE * settings.memory_budget_mib * MEBIBYTE / 1e6
    base_mb = max(SERVER_MB, mapped_mb())
    return Residency(budget_mb, settings.kept_s, base_mb=base_mb, measure_mb=mapped_mb)


def _take_error(reading: "asyncio.Future[ModelDescription]") -> None:
    """Take the error of a reading that nobody waits for any more, which asyncio would log."""
    if not reading.cancelled():
        reading.exception()


def _free_memory() -> None:
    gc.collect()  # what lasts was exempted at the start, so little is looked at
    return_freed_memory()


def _estimate(description: ModelDescription, mill: Mill) -> LoadEstimate:
    """Return the estimated memory of a model, whose engine is checked too. Raises `SetupError`."""
    plan = plan_model(description, mill.config).plan
    find_engine(plan.engine)
    parameters = fp32_bytes(list_weights(description)) / 4
    # Encoders of pictures compute in fp32, and are often in one file with those of texts.
    return estimate_load(
        parameters, plan.engine, None if description.pictures is not None else plan.precision
    )
