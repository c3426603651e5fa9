"""The headers that depend on the result of a request, and on the model that gave it."""

from typing import Any

from vecmill.mill import Mill
from vecmill.requests import Request
from vecmill.results import EmbedOutputsResult, EmbedResult, Result
from vecmill_server.base.headers import HeaderList
from vecmill_server.dialects.dialect import CompositeResult, ResponseStyle
from vecmill_server.dialects.space_headers import space_headers
from vecmill_server.dialects.truncated_inputs import truncated_headers


def answer_headers(style: ResponseStyle, request: Request[Any], result: Result, mill: Mill) -> HeaderList:
    """Return the headers about the work, the space, the inputs that were cut, and those that were kept."""
    headers = style.headers(request, result, mill.info.device)
    headers += space_headers(mill, request)
    if result.truncated:
        headers += truncated_headers(result.truncated)
    if isinstance(result, EmbedResult | EmbedOutputsResult | CompositeResult) and result.cached_count:
        headers.append((b"x-cached-inputs", b"%d" % result.cached_count))
    return headers
