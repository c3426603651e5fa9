"""`/rerank`, in the shape that Cohere's, Jina's, vLLM's and Infinity's clients share."""

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vecmill.models import Task
from vecmill_server.exchange import Exchange, send_json, timing_headers
from vecmill_server.routes.work import read_call, run_off_loop, unless_client_leaves
from vecmill_server.service import Service
from vecmill_server.wire import Envelope, decode_rerank, encode_rerank


def rerank_routes(service: Service) -> list[Route]:
    """The routes of this family: at the root, and under the versions that clients put before it."""
    rerank = Rerank(service)
    paths = ("/rerank", "/v1/rerank", "/v2/rerank")
    return [Route(path, rerank, methods=["POST"], name="rerank") for path in paths]


class Rerank:
    """POST: a query and documents to scores, best first."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, exchange = self._service, Exchange.of(scope)
        asked = await read_call(service, scope, receive, decode_rerank)
        call = asked.call
        model = service.catalog.resolve(call.model, (Task.RERANK, Task.MULTI_VECTOR, Task.SPARSE, Task.EMBED))
        exchange.texts = 1 + len(call.documents)
        work = model.mill.rerank(
            call.query,
            call.documents,
            raw_scores=call.raw_scores,
            prompt_name=call.prompt_name,
            instruction=call.instruction,
            truncate=call.truncate,
            timeout_s=asked.timeout_s,
        )
        result = await unless_client_leaves(work, receive)
        exchange.tokens = result.token_count
        envelope = Envelope(exchange.request_id, model.name, int(service.wall_clock()))
        answer = await run_off_loop(asked.is_large, lambda: encode_rerank(result, call, envelope))
        await send_json(send, answer, timing_headers(result.timings))
