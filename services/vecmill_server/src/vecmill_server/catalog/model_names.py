"""The names and aliases of models: which of them a name in a request means.

An alias without a model names the first model. With the alias `*`, a name that no model has is like no name;
with `*=MODEL`, it names that model.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from vecmill.errors import InvalidConfig

# A longer name that is not exactly the name of a model is refused without further search.
LONGEST_NAME = 1024

# The name that some clients send when no model is configured.
UNSPECIFIED = "default/not-specified"

# The alias that stands for every name that no model has.
ANY_NAME = "*"


class Named(Protocol):
    """What has a name of its own."""

    @property
    def name(self) -> str:
        """The name."""


Model = TypeVar("Model", bound=Named)


class ModelNames(Generic[Model]):
    """Models by exact name, alias, name in any case, or the part after the last slash.

    `exact` has the models by their names, then by their aliases. `accepts_any` is True with the alias `*`;
    `any_name_target` is the model that it names.
    """

    def __init__(self, models: Sequence[Model], aliases: Sequence[str]) -> None:
        """Raises `InvalidConfig` if two models share a name, or an alias is invalid."""
        self.exact = {model.name: model for model in models}
        if len(self.exact) < len(models):
            given = [model.name for model in models]
            twice = next(name for name in given if given.count(name) > 1)
            raise InvalidConfig(f"Two models have the name {twice!r}. Give one of them another: NAME=MODEL.")
        self.accepts_any = accepts_any_name(aliases)
        self.any_name_target: Model | None = None
        for alias in aliases:
            name, _, target = alias.partition("=")
            if target and target not in self.exact:
                raise InvalidConfig(f"The alias {alias!r} names a model that is not served.")
            if name == ANY_NAME:
                self.any_name_target = self.exact[target] if target else None
            else:
                self.exact.setdefault(name, self.exact[target] if target else models[0])
        # Reversed, so that of names which differ only in case, the first one given wins.
        names = [(name.casefold(), model) for name, model in reversed(self.exact.items())]
        self._by_folded_name = dict(names)
        self._by_last_part = {name.rpartition("/")[2]: model for name, model in names}
        self._by_bare_name = {name: model for name, model in names if "/" not in name}

    def find(self, name: str) -> Model | None:
        """Return the model with this name, or with this name without a client's suffix."""
        return self._find(name) or self._find(without_client_suffix(name))

    def is_unknown(self, name: str | None) -> bool:
        """Return whether a request names a model, and no model has that name."""
        return name is not None and name != UNSPECIFIED and self.find(name) is None

    def aliases_of(self, model: Model) -> list[str]:
        """Return the other names of a model."""
        return [name for name, found in self.exact.items() if found is model and name != model.name]

    def _find(self, name: str) -> Model | None:
        if len(name) > LONGEST_NAME:
            return self.exact.get(name)
        folded = name.casefold()
        for names, key in (
            (self.exact, name),
            (self._by_folded_name, folded),
            (self._by_last_part, folded),  # for clients that omit the owner
            (self._by_bare_name, folded.rpartition("/")[2]),  # for clients that add an owner
        ):
            if key in names:
                return names[key]
        return None


def accepts_any_name(aliases: Sequence[str]) -> bool:
    """Return whether one of `aliases` stands for every name that no model has."""
    return any(alias.partition("=")[0] == ANY_NAME for alias in aliases)


def without_client_suffix(name: str) -> str:
    """Return `name` without the suffix that Ollama's clients (`:latest`) or RAGFlow (`___...`) append."""
    return name.partition("___")[0].removesuffix(":latest")
