"""Strings of clients take time in proportion to their length, wherever the event loop reads them."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from vecmill.errors import VecmillError
from vecmill.mill import Mill
from vecmill_server.app.request_options import read_path, read_request_id, requested_timeout_s
from vecmill_server.base.errors import UnknownModel
from vecmill_server.base.headers import index_headers
from vecmill_server.batches.batch_request import BatchRequest, read_page
from vecmill_server.batches.uploads import _clean_name, _read_boundary
from vecmill_server.catalog.catalog import Catalog, ServedModel
from vecmill_server.dialects.dialect import InferenceRoute
from vecmill_server.dialects.dialect_routes import ROUTES
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.token_ids import refuse_ids
from vecmill_server.service.api_keys import ApiKeys, KeyCheck

SIZE = 200_000
FULL_SIZE = 1_000_000


def shapes(size: int) -> tuple[str, ...]:
    """Strings of a size: a regex or a loop that starts again at every character is quadratic for one."""
    return (
        "_" * size + "\n\n",
        "___\n" * (size // 4) + "x",
        ":latest" * (size // 7) + "\n",
        "/" * size + "\n",
        "/v1" * (size // 3),
        " " * size + "x",
        "\r\nupgrade" * (size // 9),
        "\r\nupgrade" + " \t" * (size // 2),
        ';"' * (size // 2),
        ';a="\\' * (size // 5),
        "9" * size,
        "\u0130" * (size // 10),
        "`a" * (size // 2),
    )


@pytest.fixture(
    params=[
        *shapes(SIZE),
        *(pytest.param(shape, marks=pytest.mark.full) for shape in shapes(FULL_SIZE)),
    ],
    ids=lambda shape: f"{len(shape)} of {shape[:10]!r}",
)
def shape(request: pytest.FixtureRequest) -> str:
    """A long string."""
    return str(request.param)


@pytest.fixture
def catalog() -> Catalog:
    """Two models, of which none is meant."""
    return Catalog([ServedModel("owner/a", Mill()), ServedModel("b", Mill())], ("c",))


def limit_s(shape: str) -> float:
    """The most that a string may take of one core; the worst of them took 36 s for 100,000 characters."""
    return max(0.1, 5e-7 * len(shape))


def core_seconds(call: Callable[[], Any]) -> float:
    """Return the time of the processor for a call, which may refuse its argument."""
    began = time.thread_time()
    with suppress(VecmillError):
        call()
    return time.thread_time() - began


def test_names_of_models(shape: str, catalog: Catalog) -> None:
    assert core_seconds(lambda: catalog.resolve(shape)) < limit_s(shape)
    for suffix in (":latest", "___OpenAI", "\n"):
        assert core_seconds(partial(catalog.resolve, shape + suffix)) < limit_s(shape)


def test_a_name_that_is_too_long_is_refused_before_it_is_searched(catalog: Catalog) -> None:
    with pytest.raises(UnknownModel):
        catalog.resolve("somebody/" * 1000 + "b")


def test_paths(shape: str) -> None:
    for prefix in ("", "/api"):
        scope = {"path": "/" + shape, "headers": []}
        assert core_seconds(partial(read_path, scope, prefix)) < limit_s(shape)


@pytest.mark.promise("loop-responsive")
def test_headers(shape: str) -> None:
    value = shape.encode()
    assert core_seconds(partial(read_request_id, value)) < limit_s(shape)
    keys = KeyCheck(ApiKeys(["key"]))
    for read, name in (
        (keys.find_holder, b"authorization"),
        (keys.find_holder, b"api-key"),
        (lambda scope: requested_timeout_s(index_headers(scope)), b"x-request-timeout-ms"),
    ):
        scope = {"method": "POST", "path": "/x", "headers": [(name, value)]}
        assert core_seconds(partial(read, scope)) < limit_s(shape)


@pytest.mark.promise("loop-responsive", "bounded-input")
def test_fields_of_every_body(shape: str, catalog: Catalog) -> None:
    options = DialectOptions(refuse_ids, catalog.task_of)
    for route in ROUTES:
        names = {name for body in route.bodies for field in body.fields() for name in field.properties}

        def read(name: str, route: InferenceRoute = route) -> None:
            json = {"input": "a", "inputs": "a", "query": "a", "documents": ["b"], name: shape}
            body = route.bodies[0] if route.choose is None else route.choose(json, options)
            body.parse(json, options)

        slowest = max(names, key=lambda name: core_seconds(partial(read, name)))
        assert core_seconds(partial(read, slowest)) < limit_s(shape), (route.paths, slowest)


def test_batches(shape: str, catalog: Catalog) -> None:
    options = DialectOptions(refuse_ids, catalog.task_of)
    for name in ("input_file_id", "endpoint", "completion_window", "metadata"):
        assert core_seconds(BatchRequest({name: shape}, options).read) < limit_s(shape)
    assert core_seconds(lambda: read_page({"limit": shape, "after": shape}, default=1, most=9)) < limit_s(
        shape
    )
    assert core_seconds(lambda: _clean_name(shape)) < limit_s(shape)


def test_content_types_as_long_as_headers_may_be(shape: str) -> None:
    value = b"multipart/form-data; " + shape.encode()[: 64 * 1024]
    assert core_seconds(lambda: _read_boundary(value)) < limit_s(shape)
