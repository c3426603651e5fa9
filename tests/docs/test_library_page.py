"""The web application of docs/library.md answers and explains errors, in FastAPI or in a stand-in for it."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import httpx
import pytest
from starlette import responses
from starlette.applications import Starlette
from starlette.requests import Request

import vecmill
from support.source_tree import ROOT
from vecmill import Mill, SyncMill, VecmillError

PAGE = ROOT / "docs/library.md"


class StandIn(Starlette):
    """As much of `FastAPI` as the page uses, where FastAPI is not installed: bodies and results in JSON."""

    def post(self, path: str) -> Callable[[Callable[[Any], Awaitable[object]]], object]:
        def decorate(answer: Callable[[Any], Awaitable[object]]) -> object:
            async def respond(request: Request) -> responses.Response:
                return responses.JSONResponse(await answer(await request.json()))

            self.add_route(path, respond, methods=["POST"])
            return answer

        return decorate

    def exception_handler(self, kind: type[Exception]) -> Callable[[Any], Any]:
        def decorate(explain: Any) -> Any:
            self.add_exception_handler(kind, explain)
            return explain

        return decorate


@pytest.fixture
def fastapi(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("fastapi") is None:
        found: Any = ModuleType("fastapi")
        found.FastAPI, found.Request = StandIn, Request
        monkeypatch.setitem(sys.modules, "fastapi", found)
        monkeypatch.setitem(sys.modules, "fastapi.responses", responses)


@pytest.mark.usefixtures("fastapi")
async def test_the_application_embeds_and_explains_errors() -> None:
    (program,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        if "from fastapi import" in block
    )
    names: dict[str, Any] = {}
    exec(compile(program, PAGE, "exec", dont_inherit=True), names)
    app = names["app"]
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://application") as client,
    ):
        texts = [[f"text {number}"] for number in range(20)]
        answers = await asyncio.gather(*(client.post("/embed", json=each) for each in texts))
        refusal = await client.post("/embed", json=[])
    assert [(each.status_code, len(each.json()[0])) for each in answers] == [(200, 384)] * 20
    assert (refusal.status_code, refusal.json()["detail"]) == (
        400,
        "`input` is empty; give at least one text.",
    )
    closed = await names["explain"](None, names["UnavailableError"]("closed"))
    assert closed.status_code == 503


def test_the_page_has_every_call_every_request_and_every_error_of_requests() -> None:
    text = PAGE.read_text("utf-8")
    members = {name for kind in (Mill, SyncMill) for name in vars(kind) if not name.startswith("_")}
    assert {name for name in members if f"mill.{name}" not in text} == set()
    kinds = {name: getattr(vecmill, name) for name in vecmill.__all__}
    named = {
        name
        for name, kind in kinds.items()
        if isinstance(kind, type) and issubclass(kind, vecmill.Request | VecmillError)
    }
    of_setup = {name for name in named if issubclass(kinds[name], vecmill.SetupError)}  # "and others"
    words = set(re.findall(r"\w+", text)) | {word.title() for word in re.findall(r"mill\.(\w+)\(", text)}
    assert named - of_setup - words == {"Request", "VecmillError"} - words
