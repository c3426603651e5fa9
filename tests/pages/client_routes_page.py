"""Writes the table of docs/client-routes.md from the table of the routes that clients call.

`make client-routes` runs this; a test compares the file with what it would write.
"""

from collections.abc import Iterable, Iterator

from support.source_tree import ROOT
from vecmill_server.app.client_routes import TABLE

PAGE = ROOT / "docs/client-routes.md"
MARK = "<!-- The table is written by `make client-routes` from vecmill_server/app/client_routes.py. -->\n"


def written_page() -> str:
    """Return the whole page: its prose as it is, and the table."""
    prose, mark, _ = PAGE.read_text("utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost the mark before its table"
    return "\n".join([prose + mark, *_served()]) + "\n"


def _served() -> Iterator[str]:
    yield "| API | `POST` | `GET` and others |"
    yield "|---|---|---|"
    for api, routes in TABLE.items():
        split = [route.split(" ") for route in routes.served]
        posts = [path for method, path in split if method == "POST"]
        others = [
            path if method == "GET" else f"{method} {path}" for method, path in split if method != "POST"
        ]
        yield f"| {api} | {_listed(posts)} | {_listed(others)} |"


def _listed(routes: Iterable[str]) -> str:
    return ", ".join(f"`{route}`" for route in routes)


def main() -> None:
    """Write the file."""
    PAGE.write_text(written_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
