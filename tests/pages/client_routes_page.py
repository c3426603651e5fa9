"""Writes docs/client-routes.md from the table of the routes that clients call.

`make client-routes` runs this; a test compares the file with what it would write.
"""

from collections.abc import Iterator

from support.source_tree import ROOT
from vecmill_server.app.client_routes import TABLE, ClientRoutes
from vecmill_server.app.openapi.operations import Api

PAGE = ROOT / "docs/client-routes.md"

INTRODUCTION = """\
# Routes that clients call

For each API, the routes that its clients call. A route that is not served returns a 404 in the error body
of its API, and the message says why, and which routes are served. A route that is shown with `/v1` is served
without it too. [api-clients.md](api-clients.md) says which base URL each client needs.

<!-- This page is written by `make client-routes` from vecmill_server/app/client_routes.py. -->
"""
NOTES = {
    Api.OPENAI: "Files and batches need a server with [`--batch-dir`](batches.md).",
    Api.PINECONE: (
        "The client calls these routes without `/pinecone`, where TEI has `/embed` and others `/rerank`. It "
        "sends the header X-Pinecone-API-Version, which tells them apart."
    ),
    Api.WEAVIATE: "Weaviate calls these routes at the address in its variable `TRANSFORMERS_INFERENCE_API`.",
    Api.LLAMA_CPP: "llamafile's clients read an older response. Their base URL ends in `/llamafile`.",
}


def written_page() -> str:
    """Return the whole page."""
    sections = (line for api, routes in TABLE.items() for line in _section(api, routes))
    return "\n".join([INTRODUCTION, *sections]).rstrip() + "\n"


def _section(api: Api, routes: ClientRoutes) -> Iterator[str]:
    yield f"## {api}\n"
    if api in NOTES:
        yield f"{NOTES[api]}\n"
    yield "| route | served |"
    yield "|---|---|"
    for route in routes.served:
        yield f"| `{route}` | yes |"
    for reason, refused in routes.refused.items():
        for route in refused:
            yield f"| `{route}` | no: {reason} |"
    yield ""


def main() -> None:
    """Write the file."""
    PAGE.write_text(written_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
