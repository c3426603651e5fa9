"""Which models are served, and under which names."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vecmill.errors import InvalidConfig, NotReady
from vecmill.mill import Mill, MillState
from vecmill.models import Task
from vecmill_server.errors import UnknownModel

# What Ollama's clients put after a name, and what RAGFlow does.
_LABELS = re.compile("(:latest|___.*)$")

# What some clients send when they were told no name.
UNSPECIFIED = "default/not-specified"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model and its name in requests and answers."""

    name: str
    mill: Mill

    @property
    def task(self) -> Task | None:
        """What the model computes; `None` while it has not been read."""
        try:
            return self.mill.description.task
        except NotReady:
            return None


class Catalog:
    """The served models by name: exact, alias, other capitals, or the part after the last slash.

    The first model is the one that aliases without a model mean.
    """

    def __init__(self, models: Sequence[ServedModel], aliases: Sequence[str] = ()) -> None:
        """Raises `InvalidConfig` for an alias of a model that is not served, or a name that two have."""
        self._models = tuple(models)
        self._by_name = {model.name: model for model in self._models}
        if len(self._by_name) < len(self._models):
            given = [model.name for model in self._models]
            twice = next(name for name in given if given.count(name) > 1)
            raise InvalidConfig(f"Two models are called {twice!r}. Rename the directory of one.")
        for alias in aliases:
            name, _, target = alias.partition("=")
            if target and target not in self._by_name:
                raise InvalidConfig(f"The alias {alias!r} means a model that is not served.")
            self._by_name.setdefault(name, self._by_name[target] if target else self._models[0])
        # Reversed, so that where two names fold to one, the first given stays.
        names = [(name.casefold(), model) for name, model in reversed(self._by_name.items())]
        self._by_folded_name = dict(names)
        self._by_last_part = {name.rpartition("/")[2]: model for name, model in names}
        self._by_bare_name = {name: model for name, model in names if "/" not in name}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models)

    def resolve(self, name: str | None, tasks: Sequence[Task] = ()) -> ServedModel:
        """The model that a request means. Raises `UnknownModel`.

        `tasks` are those that can answer it, the best first: a request without a name gets the first model of
        the first task that some model has.
        """
        if name is None or name == UNSPECIFIED:
            return self._unnamed(tasks)
        found = self._find(name) or self._find(_LABELS.sub("", name))
        if found is None:
            shown = name[:100]
            raise UnknownModel(
                f"The model `{shown}` does not exist. This server has: {', '.join(self._by_name)}.",
                name=shown,
            )
        return found

    def task_of(self, name: str | None) -> Task | None:
        """What the model that a request means is for; `None` while it has not been read. As `resolve`."""
        return self.resolve(name).task

    def _find(self, name: str) -> ServedModel | None:
        folded = name.casefold()
        for names, key in (
            (self._by_name, name),
            (self._by_folded_name, folded),
            (self._by_last_part, folded),  # some clients leave the owner out
            (self._by_bare_name, folded.rpartition("/")[2]),  # and some put it in
        ):
            if key in names:
                return names[key]
        return None

    def _unnamed(self, tasks: Sequence[Task]) -> ServedModel:
        if len(self._models) == 1:
            return self._models[0]
        of_task = {model.task: model for model in reversed(self._models)}
        return next((of_task[task] for task in tasks if task in of_task), self._models[0])

    @property
    def is_ready(self) -> bool:
        """Whether every model takes work and has lost nothing."""
        return all(model.mill.state is MillState.READY for model in self._models)
