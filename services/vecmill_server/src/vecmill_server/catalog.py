"""Which models are served, and under which names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vecmill.errors import InvalidConfig
from vecmill.mill import Mill, MillState
from vecmill_server.errors import UnknownModel

# What some clients send when they were told no name.
UNSPECIFIED = "default/not-specified"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model and its name in requests and answers."""

    name: str
    mill: Mill


class Catalog:
    """The served models by name: exact, alias, other capitals, or the part after the last slash.

    The first model is the one that requests without a name get, and that aliases without one mean.
    """

    def __init__(self, models: Sequence[ServedModel], aliases: Sequence[str] = ()) -> None:
        """Raises `InvalidConfig` for an alias of a model that is not served."""
        self._models = tuple(models)
        self._by_name = {model.name: model for model in self._models}
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

    def resolve(self, name: str | None) -> ServedModel:
        """The model that a request means. Raises `UnknownModel`."""
        if name is None or name == UNSPECIFIED:
            return self._models[0]
        folded = name.casefold()
        for names, key in (
            (self._by_name, name),
            (self._by_folded_name, folded),
            (self._by_last_part, folded),  # some clients leave the owner out
            (self._by_bare_name, folded.rpartition("/")[2]),  # and some put it in
        ):
            if key in names:
                return names[key]
        raise UnknownModel(
            f"The model `{name[:100]}` does not exist. This server has: {', '.join(self._by_name)}.",
            field="model",
        )

    @property
    def is_ready(self) -> bool:
        """Whether every model takes work and has lost nothing."""
        return all(model.mill.state is MillState.READY for model in self._models)
