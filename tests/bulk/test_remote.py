"""A server that refuses, is slow or wrong: what is repeated, what is halved, and what is given up."""

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import httpx2
import numpy as np
import pytest

from vecmill.bulk.embedder import EmbedParameters
from vecmill.bulk.remote import PATIENCE_S, ConcurrencyLimiter, RemoteEmbedder, open_remote
from vecmill.errors import InferenceFailed, InvalidConfig, InvalidRequest, NonFiniteOutput, ServerFailed
from vecmill.requests import Picture, Purpose
from vecmill.values.embeddings import OutputDtype

DIM = 4
PLAIN = EmbedParameters()
Answer = Callable[[httpx2.Request], httpx2.Response]


class Stage:
    """A server that answers by a script, then well; and a clock that nobody waits for."""

    def __init__(self, *script: httpx2.Response | Exception) -> None:
        self.script = list(script)
        self.models: list[httpx2.Response] = []
        self.bodies: list[dict[str, object]] = []
        self.slept: list[float] = []
        self.limiter = ConcurrencyLimiter()

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/models":
            if self.models:
                return self.models.pop(0)
            entry = {"id": "m", "engine": "onnx", "precision": "fp32", "created": 1}
            return httpx2.Response(200, json={"data": [{"id": "other"}, entry]})
        assert request.url.path == "/v1/embeddings"
        body = json.loads(request.content)
        self.bodies.append(body)
        if self.script:
            step = self.script.pop(0)
            if isinstance(step, Exception):
                raise step
            return step
        return httpx2.Response(200, json=well(body["input"]))

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    @asynccontextmanager
    async def embedder(self, parameters: EmbedParameters = PLAIN) -> AsyncIterator[RemoteEmbedder]:
        transport = httpx2.MockTransport(self.answer)
        async with httpx2.AsyncClient(base_url="http://server/v1", transport=transport) as client:
            yield RemoteEmbedder(client, "m", parameters, limiter=self.limiter, sleep=self.sleep)


def row(text: str) -> list[float]:
    return [float(len(text)), 1.0, 2.0, 3.0]


def well(texts: Sequence[str], name: str = "m") -> dict[str, object]:
    rows = [base64.b64encode(np.array(row(text), "<f4").tobytes()).decode() for text in texts]
    data = [{"index": index, "embedding": value} for index, value in enumerate(rows)]
    return {"model": name, "data": data[::-1], "usage": {"total_tokens": 2 * len(texts)}}


async def test_pictures_are_objects_and_are_halved_if_they_are_too_much() -> None:
    pictures = [Picture(b"GIF89a" + bytes([number] * 6)) for number in range(3)]
    stage = Stage(refusal(413), refusal(429, retry_after="2"))
    async with stage.embedder(EmbedParameters(has_pictures=True)) as embedder:
        found = await embedder.embed(pictures)
    assert len(found.embeddings) == 3
    written = [{"image": f"data:image/gif;base64,{base64.b64encode(one.data).decode()}"} for one in pictures]
    assert [body["input"] for body in stage.bodies] == [written, written[:1], written[:1], written[1:]]
    assert stage.slept == [2]


def refusal(status: int, message: str = "No.", **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json={"error": {"message": message}}, headers=named)


async def test_rows_come_in_the_order_of_the_texts() -> None:
    stage = Stage()
    async with stage.embedder(EmbedParameters("p", Purpose.QUERY, DIM)) as embedder:
        found = await embedder.embed(["a", "bbb"])
    assert found.embeddings.tolist() == [row("a"), row("bbb")]
    assert found.token_count == 4
    assert stage.bodies == [
        {
            "model": "m",
            "dimensions": DIM,
            "prompt_name": "p",
            "input_type": "query",
            "input": ["a", "bbb"],
            "encoding_format": "base64",
        }
    ]


async def test_plain_numbers_are_read_too() -> None:
    plain = {"model": "m", "data": [{"index": 0, "embedding": row("a")}]}
    async with Stage(httpx2.Response(200, json=plain)).embedder() as embedder:
        found = await embedder.embed(["a"])
    assert (found.embeddings.tolist(), found.token_count) == ([row("a")], 0)


async def test_meeting_a_server_tells_what_the_rows_depend_on() -> None:
    async with Stage().embedder() as embedder:
        await embedder.probe()
        assert embedder.identity == {"name": "m", "engine": "onnx", "precision": "fp32"}
        assert embedder.dim == DIM


def in_space(number: int, **others: str) -> httpx2.Response:
    digits = f"{number:032x}"
    headers = {"x-space": f"s1-{digits}", "x-space-exact": f"e1-{digits}", **others}
    return httpx2.Response(200, json=well(["vecmill"]), headers=headers)


@pytest.mark.promise("space-identifies")
async def test_the_space_and_the_prompt_are_part_of_what_the_rows_depend_on() -> None:
    stage = Stage(in_space(1, **{"x-prompt-name": "query"}))
    async with stage.embedder() as embedder:
        await embedder.probe()
    found = {name: embedder.identity[name] for name in ("space", "exact", "prompt_name")}
    assert found == {"space": "s1-" + "1".zfill(32), "exact": "e1-" + "1".zfill(32), "prompt_name": "query"}


@pytest.mark.promise("space-identifies")
@pytest.mark.parametrize("second", [in_space(2), httpx2.Response(200, json=well(["vecmill"]))])
async def test_a_server_whose_space_changes_midway_is_given_up(second: httpx2.Response) -> None:
    stage = Stage(in_space(1), in_space(1), second)
    async with stage.embedder() as embedder:
        await embedder.probe()
        await embedder.embed(["vecmill"])
        with pytest.raises(ServerFailed, match=r"now returns vectors of .* instead of e1-0+1: its model"):
            await embedder.embed(["vecmill"])


async def test_what_the_rows_depend_on_is_waited_for_like_rows() -> None:
    stage = Stage()
    stage.models = [refusal(503, retry_after="3")]
    async with stage.embedder() as embedder:
        await embedder.probe()
        assert embedder.identity == {"name": "m", "engine": "onnx", "precision": "fp32"}
    assert stage.slept == [3.0]


async def test_rows_of_bits_are_asked_for_as_whole_numbers() -> None:
    stage = Stage(httpx2.Response(200, json={"model": "m", "data": [{"index": 0, "embedding": [-128, 127]}]}))
    async with stage.embedder(EmbedParameters(dimensions=16, kind=OutputDtype.BINARY)) as embedder:
        await embedder.probe()
        assert embedder.dim == 2
    assert (stage.bodies[0]["output_dtype"], stage.bodies[0]["encoding_format"]) == ("binary", "float")


@pytest.mark.parametrize("value", [[0.5, 1.0], "AAAA", [1, 200]], ids=["floats", "base64", "other bits"])
async def test_a_server_that_knows_no_fewer_bits_is_found_out(value: object) -> None:
    stage = Stage(httpx2.Response(200, json={"model": "m", "data": [{"index": 0, "embedding": value}]}))
    async with stage.embedder(EmbedParameters(kind=OutputDtype.INT8)) as embedder:
        with pytest.raises(ServerFailed, match="without int8 embeddings"):
            await embedder.probe()


async def test_a_server_that_cuts_no_rows_is_found_out_at_the_start() -> None:
    async with Stage().embedder(EmbedParameters(dimensions=DIM - 1)) as embedder:
        with pytest.raises(
            InvalidConfig, match=f"ignores --dimensions and returns embeddings of {DIM} dimensions"
        ):
            await embedder.probe()


@pytest.mark.parametrize("status", [500, 504])
async def test_a_server_that_fails_from_the_start_is_named(status: int) -> None:
    async with Stage(refusal(status, "The reason.")).embedder() as embedder:
        with pytest.raises(ServerFailed, match=r"http://server/v1/? failed a test request: The reason\."):
            await embedder.probe()


NOT_A_NUMBER = base64.b64encode(np.array([1, np.nan, 2, 3], "<f4").tobytes()).decode()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("row", [NOT_A_NUMBER, [1, 1e39, 2, 3]], ids=["NaN", "beyond float32"])
async def test_a_row_that_is_no_number_is_a_failure_of_its_text(row: str | list[float]) -> None:
    stage = Stage()
    async with stage.embedder() as embedder:
        await embedder.probe()
        stage.script = [
            httpx2.Response(200, json={"model": "m", "data": [{"index": 0, "embedding": row}]}),
        ]
        with pytest.raises(NonFiniteOutput):
            await embedder.embed(["a"])


async def test_a_password_in_the_address_stays_out_of_messages() -> None:
    with pytest.raises(ServerFailed) as raised:
        async with open_remote("http://somebody:secret@127.0.0.1:1", None, PLAIN):
            pass
    assert "127.0.0.1:1" in raised.value.message
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("refused", "pause_s"),
    [
        (refusal(429, retry_after="7"), 7.0),
        (refusal(503, retry_after="7", retry_after_ms="1500"), 1.5),
        (refusal(429, retry_after="Sat, 21 Nov 2026 12:00:00 GMT"), 0.5),
        (refusal(503), 0.5),
        (refusal(502), 0.5),
        (httpx2.ConnectError("refused"), 0.5),
        (httpx2.RemoteProtocolError("cut off"), 0.5),
        (httpx2.DecodingError("incorrect header check"), 0.5),
    ],
    ids=["seconds", "milliseconds", "date", "nothing said", "gateway", "no connection", "cut off", "garbled"],
)
async def test_a_refusal_is_waited_out(refused: httpx2.Response | Exception, pause_s: float) -> None:
    stage = Stage()
    async with stage.embedder() as embedder:
        await embedder.probe()
        stage.script = [refused]
        found = await embedder.embed(["a"])
    assert found.embeddings.tolist() == [row("a")]
    assert stage.slept == [pause_s]


async def test_without_a_time_the_waits_grow_and_end() -> None:
    stage = Stage(*[refusal(503, "Still loading.")] * 100)
    async with stage.embedder() as embedder:
        with pytest.raises(ServerFailed, match=r"responded with status 503: Still loading\."):
            await embedder.embed(["a"])
    assert stage.slept[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(stage.slept) == 30
    assert PATIENCE_S <= sum(stage.slept) <= PATIENCE_S + 30


async def test_a_server_that_goes_away_is_named_when_patience_ends() -> None:
    stage = Stage()
    async with stage.embedder() as embedder:
        await embedder.probe()
        stage.script = [httpx2.ConnectError("refused")] * 100
        with pytest.raises(ServerFailed, match=r"http://server/v1/? cannot be reached: refused"):
            await embedder.embed(["a"])
    assert sum(stage.slept) >= PATIENCE_S


async def test_a_server_that_is_not_there_is_named_at_once() -> None:
    stage = Stage(httpx2.ConnectError("refused"))
    async with stage.embedder() as embedder:
        with pytest.raises(ServerFailed, match=r"http://server/v1/? cannot be reached: refused"):
            await embedder.probe()
    assert not stage.slept


async def test_a_server_that_loads_is_waited_for() -> None:
    stage = Stage(refusal(503, retry_after="1"), refusal(503, retry_after="1"))
    async with stage.embedder() as embedder:
        await embedder.probe()
    assert stage.slept == [1.0, 1.0]


async def test_the_similarity_of_texts_has_another_name_on_the_wire() -> None:
    stage = Stage()
    async with stage.embedder(EmbedParameters(purpose=Purpose.SIMILARITY)) as embedder:
        await embedder.embed(["a"])
    assert stage.bodies[0]["input_type"] == "text-matching"


@pytest.mark.parametrize("status", [413, 504])
async def test_too_much_at_once_is_halved(status: int) -> None:
    stage = Stage(refusal(status), refusal(status))
    async with stage.embedder() as embedder:
        found = await embedder.embed(["a", "bb", "ccc", "dddd"])
    assert found.embeddings[:, 0].tolist() == [1, 2, 3, 4]
    assert [len(body["input"]) for body in stage.bodies] == [4, 2, 1, 1, 2]  # type: ignore[arg-type]
    assert found.token_count == 8


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidRequest),
        (422, InvalidRequest),
        (413, InvalidRequest),
        (500, InferenceFailed),
        (504, InferenceFailed),
        (401, ServerFailed),
        (404, ServerFailed),
    ],
)
async def test_what_is_no_use_to_repeat_is_not_repeated(status: int, error: type[Exception]) -> None:
    stage = Stage(refusal(status, "The reason."))
    async with stage.embedder() as embedder:
        with pytest.raises(error, match=r"The reason\."):
            await embedder.embed(["a"])
    assert len(stage.bodies) == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(200, text="<html>"),
        httpx2.Response(200, text="[" * 100_000),
        httpx2.Response(200, json=[]),
        httpx2.Response(200, json={"model": "m", "data": [{"index": 0, "embedding": "%%"}]}),
        httpx2.Response(200, json={"model": "m", "data": [{"index": 0}]}),
        httpx2.Response(200, json={"model": "m", "data": []}),
        httpx2.Response(200, json=well(["a", "b"])),
        httpx2.Response(200, json={"model": "m", "data": [{"index": 0, "embedding": [1.0]}]}),
        httpx2.Response(200, json=well(["a"], name="another")),
    ],
    ids=["html", "deep", "list", "no base64", "no row", "none", "too many", "too short", "another model"],
)
async def test_an_answer_that_is_wrong_ends_it(answer: httpx2.Response) -> None:
    stage = Stage()
    async with stage.embedder() as embedder:
        await embedder.probe()
        stage.script = [answer]
        with pytest.raises(ServerFailed):
            await embedder.embed(["a"])


async def test_a_refusal_that_is_no_document_is_quoted() -> None:
    for text in ("<html>", "[" * 100_000):
        async with Stage(httpx2.Response(400, text=text)).embedder() as embedder:
            with pytest.raises(InvalidRequest, match=re.escape(text[:200])):
                await embedder.embed(["a"])


async def test_what_the_server_refuses_of_the_options_is_said_at_the_start() -> None:
    async with Stage(refusal(400, "The model has no prompt named 'p'.")).embedder() as embedder:
        with pytest.raises(InvalidConfig, match="no prompt named 'p'"):
            await embedder.probe()


@pytest.mark.parametrize("key", ["two keys", "ключ", "a\nb"])
async def test_a_key_that_no_header_can_hold_is_refused(key: str) -> None:
    with pytest.raises(InvalidConfig, match="--api-key"):
        async with open_remote("http://127.0.0.1:1", None, EmbedParameters(), key=key):
            pass


@pytest.mark.parametrize("url", ["127.0.0.1:7997", "localhost", "ftp://a", "http://", ""])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="--server"):
        async with open_remote(url, None, EmbedParameters()):
            pass


async def test_the_gate_opens_one_by_one_and_closes_by_half() -> None:
    limiter = ConcurrencyLimiter(first=4, most=6)
    for _ in range(5):
        limiter.increase()
    assert limiter.limit == 6
    for limit in (3, 1, 1):
        limiter.decrease()
        assert limiter.limit == limit


async def test_a_refusal_narrows_the_gate() -> None:
    stage = Stage(refusal(429))
    async with stage.embedder() as embedder:
        await embedder.embed(["a"])
    assert stage.limiter.limit == ConcurrencyLimiter().limit // 2 + 1
