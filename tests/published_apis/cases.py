"""The requests that are sent, and the differences that are intended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a response and the published document that is intended, and its reason.

    `mismatches` are all that the check finds in each response that differs so. `*` is any place in a list.
    """

    reason: str
    mismatches: tuple[str, ...]


def shorten(body: object) -> str:
    """A body as the name of a case has it."""
    text = str(body)
    return text if len(text) <= 120 else f"{text[:40]}…{text[-80:]}"


@dataclass(frozen=True, slots=True)
class Case:
    """One request, and the status of its response.

    `operation` is the method and the path in the document. `{name}` in the path, in `query` and in `json`
    stands for an id: one of `ids`, or else of the server, which is one of `servers`. A body is `json`, or the
    bytes `content`, or a form with a `file` whose other fields are `form`. `differs` names an intended
    difference.
    """

    api: str
    operation: str
    status: int
    about: str
    json: Any = None
    content: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    file: bytes = b""
    ids: Mapping[str, str] = field(default_factory=dict)
    server: str = "every task"
    differs: str | None = None

    @property
    def name(self) -> str:
        """The name of the case, which no other case has."""
        return f"{self.api} {self.operation} {self.status} {self.about}, {self.server}"

    @property
    def fields(self) -> set[str]:
        """The names of the fields of the body, and of the parameters in the query."""
        if self.form is not None:
            return {"file", *(name.partition("[")[0] for name in self.form)}
        return {*(self.json or {}), *self.query}


@dataclass(frozen=True, slots=True)
class ApiCases:
    """The requests of the clients of an API, and what differs from its document on purpose.

    `unused` are the statuses of the document that no request gets, and `refused` the fields of requests that
    are never accepted, by operation, each with its reason.
    """

    cases: tuple[Case, ...]
    differences: Mapping[str, Difference]
    unused: Mapping[tuple[str, int], str]
    refused: Mapping[tuple[str, str], str]
