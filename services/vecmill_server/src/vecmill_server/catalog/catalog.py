"""The catalog of the served models and their states, and the lookup of the model of a request."""

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from vecmill.errors import NotReady, SetupError
from vecmill.mill import Mill
from vecmill.values.task import Task
from vecmill_server.base.errors import ModelUnavailable, UnknownModel
from vecmill_server.base.json_measure import DocumentLimits
from vecmill_server.catalog.load_failures import explain_failure
from vecmill_server.catalog.model_names import UNSPECIFIED, ModelNames
from vecmill_server.catalog.residency import Residency
from vecmill_server.catalog.residents import Resident, ResidentPlace

# The values that an input may have besides token ids, such as the fields of a document to rank.
VALUES_PER_INPUT = 256

# Takes the unknown name in a request, and the name of the model that answers.
OnUnknownName = Callable[[str, str], None]


class ModelState(StrEnum):
    """The state of a served model: that of its mill, or the reason why the mill cannot answer."""

    NOT_LOADED = "not_loaded"  # it is loaded at its next request
    LOADING = "loading"
    READY = "ready"
    DEGRADED = "degraded"  # some workers are lost, and the others answer
    FAILED = "failed"  # the model could not be loaded
    LOST = "lost"  # every worker is lost
    CLOSED = "closed"  # by a stop


_REASONS = {
    ModelState.DEGRADED: "A worker of this model died or hangs. The other workers answer.",
    ModelState.LOST: "Every worker of this model died or hangs. The process has to be restarted.",
}


@dataclass(eq=False, slots=True)
class ServedModel:
    """A model and its name in requests and responses. `failure` is the error if it could not be loaded.

    A model loaded on demand has a `resident` when its settings have been checked, and another mill for
    each load. `used_at` is when its last request was computed, by the monotonic clock.
    """

    name: str
    mill: Mill
    failure: SetupError | None = None
    resident: Resident | None = None
    used_at: float | None = None

    @property
    def state(self) -> ModelState:
        """The state of the model."""
        resident = self.resident
        if self.failure is not None:
            return ModelState.FAILED
        if resident is not None and resident.place is not ResidentPlace.LOADED:
            if resident.place is ResidentPlace.LOADING:
                return ModelState.LOADING
            return ModelState.NOT_LOADED if resident.failure is None else ModelState.FAILED
        if self.mill.is_lost:
            return ModelState.LOST
        return ModelState(self.mill.state.value)

    @property
    def is_ready(self) -> bool:
        """True if all of its workers can answer, or it can be loaded for the next request."""
        state = self.state
        if self.resident is not None and state in (ModelState.NOT_LOADED, ModelState.LOADING):
            return True
        return state is ModelState.READY

    @property
    def is_starting(self) -> bool:
        """True until it is loaded for the first time or has failed; if loaded on demand, until checked."""
        return self.resident is None and self.state is ModelState.LOADING

    @property
    def reason(self) -> str | None:
        """The reason why the model is failed, lost or degraded, otherwise `None`. The reason has no paths."""
        if self.failure is not None:
            return explain_failure(self.failure)
        state = self.state
        if state is ModelState.FAILED and self.resident is not None and self.resident.failure is not None:
            return explain_failure(self.resident.failure)
        return _REASONS.get(state)

    @property
    def task(self) -> Task | None:
        """The task of the model; `None` until the model is described."""
        try:
            return self.mill.description.task
        except NotReady:
            return None

    @property
    def tasks(self) -> tuple[Task, ...] | None:
        """The tasks of the model, its own first; `None` until the model is described."""
        try:
            return self.mill.description.tasks
        except NotReady:
            return None

    @property
    def embeds_pictures(self) -> bool | None:
        """Whether the model embeds pictures; `None` until it is described."""
        try:
            return self.mill.description.pictures is not None
        except NotReady:
            return None


class Catalog:
    """The served models, and the lookup of the model of a request. `models` has removed ones too."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        aliases: Sequence[str] = (),
        on_unknown_name: OnUnknownName | None = None,
        residency: Residency | None = None,
    ) -> None:
        """Index the models. `on_unknown_name` is called for each request that the alias `*` serves.

        `residency` loads models on demand and drops them. Raises `InvalidConfig` if two models share a
        name, or an alias is invalid.
        """
        self.models = tuple(models)
        self.residency = residency
        self.names = ModelNames(self.models, aliases)
        self.removed: set[str] = set()  # the names of models that are not served until they are restored
        self._on_unknown_name = on_unknown_name

    def __iter__(self) -> Iterator[ServedModel]:
        return (model for model in self.models if model.name not in self.removed)

    def listed(self) -> list[ServedModel]:
        """Return the models, then each alias as the model that it names. The alias `*` is not listed."""
        served = (name for name, model in self.names.exact.items() if model.name not in self.removed)
        return [self._under(name) for name in served]

    def has_name(self, name: str) -> bool:
        """Return whether a served model has this name, other than by the alias `*`."""
        found = self.names.find(name)
        return found is not None and found.name not in self.removed

    def describe(self, name: str) -> ServedModel:
        """Return the model of this name, under that name if it is an alias. Raises `UnknownModel`."""
        model = self.names.exact.get(name)
        is_served = model is not None and model.name not in self.removed
        return self._under(name) if is_served else self.resolve(name)

    def _under(self, name: str) -> ServedModel:
        model = self.names.exact[name]
        return model if name == model.name else replace(model, name=name)

    def resolve(
        self, name: str | None, tasks: Sequence[Task] = (), *, needs_pictures: bool = False
    ) -> ServedModel:
        """Return the model of a request. Raises `UnknownModel`.

        `tasks` are the tasks that can serve the request, the preferred task first. A request without a name
        gets the first model that does the earliest task of `tasks` that any model does; with
        `needs_pictures` the first of these that embeds pictures, if there is one.
        """
        if name is None or name == UNSPECIFIED:
            return self._unnamed(tasks, needs_pictures) if len(self.models) > 1 else self.models[0]
        found = self.names.find(name)
        if found is not None and found.name in self.removed:
            found = None
        if found is None and self.names.accepts_any:
            found = self.names.any_name_target or self._unnamed(tasks, needs_pictures)
            found = None if found.name in self.removed else found
        if found is None:
            shown = name[:100]
            raise UnknownModel(
                f"The model `{shown}` does not exist. This server has: {self._list_names()}.",
                name=shown,
            )
        return found

    def _list_names(self) -> str:
        return ", ".join(name for name, model in self.names.exact.items() if model.name not in self.removed)

    def resolve_serving(
        self, name: str | None, tasks: Sequence[Task] = (), *, needs_pictures: bool = False
    ) -> ServedModel:
        """Return the model of a request that is to be computed.

        Raises `UnknownModel`, and `ModelUnavailable` if the model failed to load or lost its workers.
        """
        model = self.resolve(name, tasks, needs_pictures=needs_pictures)
        if self.names.accepts_any and self._on_unknown_name is not None and self.names.is_unknown(name):
            self._on_unknown_name(str(name), model.name)
        if model.failure is not None:
            raise ModelUnavailable(
                f"The model `{model.name}` could not be loaded. The log of the server has the reason."
            )
        if model.mill.is_lost:
            raise ModelUnavailable(
                f"The model `{model.name}` has lost its workers. Another server may answer."
            )
        return model

    def may_answer(self, model: ServedModel) -> bool:
        """Return whether a request for a model may be answered: it is ready, or would be loaded once more.

        A model whose load failed is loaded again by a request only, so a server that refused requests until
        the model is ready would refuse them for ever.
        """
        if model.is_ready or model.failure is not None or model.state is not ModelState.FAILED:
            return model.is_ready
        return (
            self.residency is not None
            and model.resident is not None
            and self.residency.may_try(model.resident)
        )

    @asynccontextmanager
    async def hold(
        self,
        model: ServedModel,
        timeout_s: float | None = None,
        client: str | None = None,
        keep_s: float | None = None,
        *,
        is_admin: bool = False,
    ) -> AsyncIterator[None]:
        """Hold a model in memory for a request of `client`; load it first if it is loaded on demand.

        Waits at most `timeout_s`, by default the model's own limit. The model is then kept for `keep_s`, by
        default as configured. What an admin says takes the place of what others have asked for. Raises the
        errors of `Residency.acquire`.
        """
        resident = model.resident
        if resident is None or self.residency is None:
            yield
            return
        wait_s = model.mill.config.queue.longest_s if timeout_s is None else timeout_s
        await self.residency.acquire(resident, wait_s, client)
        try:
            yield
        finally:
            if model.name in self.removed:  # while the request waited for the load
                self.residency.keep(resident, 0.0)
            elif is_admin and keep_s is not None:
                self.residency.keep(resident, keep_s)
            self.residency.release(resident, keep_s)

    def task_of(self, name: str | None, tasks: Sequence[Task] = (), /) -> Task | None:
        """Return the task of the model that a request gets, `None` while that model has no description.

        `tasks` are those of `resolve`. Raises `UnknownModel`.
        """
        return self.resolve(name, tasks).task

    def _unnamed(self, tasks: Sequence[Task], needs_pictures: bool = False) -> ServedModel:
        # The task of a model that could not be read, or is still being downloaded, is unknown. The request
        # may mean such a model, and the vectors of another model would be wrong, so it is not passed over.
        for task in tasks:
            found = [model for model in self if model.tasks is None or task in model.tasks]
            of_pictures = (model for model in found if model.embeds_pictures is not False)
            if found:
                return next(of_pictures, found[0]) if needs_pictures else found[0]
        return next(iter(self))

    def refuse_if_full(self, client: str | None, most_tokens: int) -> None:
        """Raise the error of a mill if none would admit a request of `client` of at most so many tokens."""
        fullest_s, best = math.inf, self.models[0].mill
        for model in self.models:
            delay_s = model.mill.least_delay_s(client, most_tokens)
            if not delay_s:
                return
            if delay_s < fullest_s:
                fullest_s, best = delay_s, model.mill
        best.refuse_if_full(client, most_tokens)

    @property
    def is_loading(self) -> bool:
        """True until every model is loaded, can be loaded at a request, or has failed."""
        return any(model.is_starting for model in self.models)

    @property
    def has_running_load(self) -> bool:
        """True while a thread loads a model."""
        return any(model.state is ModelState.LOADING for model in self.models)

    @property
    def document_limits(self) -> DocumentLimits:
        """The limits on JSON documents, for the longest request that a model accepts."""
        limits = [model.mill.config.inputs for model in self.models]
        return DocumentLimits(
            max(each.max_request_tokens + VALUES_PER_INPUT * each.max_inputs for each in limits),
            max(each.max_request_characters for each in limits),
        )
