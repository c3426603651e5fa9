"""Tables of calls by client, as the parameters of a test."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from support.client_packages import NPM_GROUP, RESIDENT, driver_and_group


def cases(table: Mapping[str, Sequence[str]]) -> list[Any]:
    """A client and a call for each call. Packages that `make test` does not install are for the full size."""
    return [at_its_size(client, call) for client, calls in table.items() for call in calls]


def at_its_size(client: str, *values: Any) -> Any:
    """A case of a client, at full size if `make test` does not install its package."""
    driver, group = driver_and_group(client)
    is_quick = driver in RESIDENT and group != NPM_GROUP
    return pytest.param(client, *values, marks=() if is_quick else pytest.mark.full)
