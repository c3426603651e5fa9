"""`/classify`, which Infinity's and vLLM's clients share."""

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vecmill.models import Task
from vecmill_server.exchange import Exchange, send_json, timing_headers
from vecmill_server.routes.work import LARGE_ROWS, read_call, run_off_loop, unless_client_leaves
from vecmill_server.service import Service
from vecmill_server.wire import Envelope
from vecmill_server.wire.classify import decode_classify, encode_classify


def classify_routes(service: Service) -> list[Route]:
    """The routes of this family, at the root and under `/v1`."""
    classify = Classify(service)
    return [
        Route(path, classify, methods=["POST"], name="classify") for path in ("/classify", "/v1/classify")
    ]


class Classify:
    """POST: texts to labels."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, exchange = self._service, Exchange.of(scope)
        asked = await read_call(service, scope, receive, decode_classify)
        call = asked.call
        model = service.catalog.resolve(call.model, (Task.CLASSIFY, Task.RERANK))
        exchange.texts = len(call.inputs)
        work = model.mill.classify(call.inputs, raw_scores=call.raw_scores, timeout_s=asked.timeout_s)
        result = await unless_client_leaves(work, receive)
        exchange.tokens = result.token_count
        envelope = Envelope(exchange.request_id, model.name, int(service.wall_clock()))
        answer = await run_off_loop(
            len(result.scores) > LARGE_ROWS, lambda: encode_classify(result, call, envelope)
        )
        await send_json(send, answer, timing_headers(result.timings))
