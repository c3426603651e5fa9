"""Writes the tables of docs/client-routes.md from the table of the routes that clients call.

`make client-routes` runs this; a test compares the file with what it would write.
"""

from collections.abc import Iterable, Iterator

from support.source_tree import ROOT
from vecmill_server.app.client_routes import TABLE

PAGE = ROOT / "docs/client-routes.md"
MARK = "<!-- The tables are written by `make client-routes` from vecmill_server/app/client_routes.py. -->\n"


def written_page() -> str:
    """Return the whole page: its prose as it is, and the tables."""
    prose, mark, _ = PAGE.read_text("utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost the mark before its tables"
    return "\n".join([prose + mark, *_served(), "", *_refused()]) + "\n"


def _served() -> Iterator[str]:
    yield "### Served\n"
    yield "| API | `POST` | `GET` and others |"
    yield "|---|---|---|"
    for api, routes in TABLE.items():
        split = [route.split(" ") for route in routes.served]
        posts = [path for method, path in split if method == "POST"]
        others = [
            path if method == "GET" else f"{method} {path}" for method, path in split if method != "POST"
        ]
        yield f"| {api} | {_listed(posts)} | {_listed(others)} |"


def _refused() -> Iterator[str]:
    yield "### Not served\n"
    yield "| reason in the message | API and routes |"
    yield "|---|---|"
    reasons = dict.fromkeys(reason for routes in TABLE.values() for reason in routes.refused)
    for reason in reasons:
        of_apis = [
            f"{api}: {_listed(routes.refused[reason])}"
            for api, routes in TABLE.items()
            if reason in routes.refused
        ]
        yield f"| {reason} | {'. '.join(of_apis)} |"


def _listed(routes: Iterable[str]) -> str:
    return ", ".join(f"`{route}`" for route in routes)


def main() -> None:
    """Write the file."""
    PAGE.write_text(written_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
