"""How a driver talks to the tests: it makes calls with a client's package and prints what came of each.

`python -m clients.drivers.NAME BASE_URL [CALL...]` makes all its calls, or those that are named, and its last
line is `{CALL: {"result": ...} or {"error": {"types": ..., "message": ...}}}`.

Drivers run where the client is installed and vecmill is not: they import neither it nor pytest.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any


def base_url() -> str:
    """Where the server is, without a slash at the end."""
    return sys.argv[1]


def report(calls: Mapping[str, Callable[[], Any]]) -> None:
    """Make the calls that the command line asks for, and print what came of them."""
    names = sys.argv[2:] or list(calls)
    print(json.dumps({name: _outcome(calls[name]) for name in names}, default=_as_list))


def ranked(results: Any, score: str = "relevance_score") -> list[list[Any]]:
    """Entries of a ranking that have `index` and `score`, as lists of both."""
    return [[result.index, getattr(result, score)] for result in results]


def _outcome(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": call()}
    except Exception as error:  # whatever the client raises is what is asked about
        types = [kind.__name__ for kind in type(error).__mro__]
        return {"error": {"types": types, "message": _words(error)}}


def _words(error: Exception) -> str:
    """What a client takes for the server's words. As text, some errors show all of the answer."""
    body = getattr(error, "body", None)
    return str(body.get("message", "")) if isinstance(body, dict) else str(error)


def _as_list(value: Any) -> Any:
    """Numpy's arrays and numbers as JSON has them."""
    return value.tolist()
