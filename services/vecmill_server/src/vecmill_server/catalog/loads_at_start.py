"""What becomes of each model at the start: it is loaded, waits for its first request, or has failed."""

import logging

from vecmill.errors import SetupError
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_server.catalog.catalog import Catalog, ServedModel
from vecmill_server.catalog.on_demand_model import OnDemandModel

logger = logging.getLogger(__name__)


async def load_at_start(
    model: ServedModel, catalog: Catalog, on_demand: OnDemandModel | None, *, is_strict: bool
) -> None:
    """Load a model, or note its failure. Raises `SetupError` if all models have to be served.

    The settings of a model that is loaded on demand are checked; it is loaded at its first request.
    """
    if model.failure is not None:
        return
    try:
        if on_demand is None or catalog.residency is None:
            await model.mill.start()
        else:
            await on_demand.check(catalog.residency)
    except SetupError as error:
        model.failure = error
    except INTERRUPTIONS:
        raise
    except BaseException:
        logger.exception("loading %s failed", model.name)
        model.failure = SetupError(f"The model {model.name} could not be loaded. The log has the cause.")
    if model.failure is not None:
        # The error of the only model is printed when the process ends.
        if is_strict or len(list(catalog)) == 1:
            raise model.failure
        logger.error("the model %s could not be loaded: %s", model.name, model.failure.message)
        await _close_failed(model)


async def _close_failed(model: ServedModel) -> None:
    """Release what a model took before it failed, because the process goes on without the model."""
    try:
        await model.mill.close()
    except INTERRUPTIONS:
        raise
    except BaseException:
        logger.exception("closing %s failed", model.name)


def refuse_without_models(catalog: Catalog) -> None:
    """Raise the error of the first model if all have failed."""
    failures = [model.failure for model in catalog if model.failure is not None]
    if failures and len(failures) == len(list(catalog)):
        raise failures[0]
