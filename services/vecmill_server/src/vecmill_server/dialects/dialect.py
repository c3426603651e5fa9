"""The parts of a dialect: request bodies that become model requests, response styles, and routes.

A dialect is the way in which the clients of one API write requests and read responses.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from vecmill.errors import RequestError
from vecmill.mill import Mill
from vecmill.requests import Caller, FetchPictures, PictureUrl, Priority, Request
from vecmill.results import Result, Timings
from vecmill.values.aliases import JsonValue
from vecmill.values.observer import Timeline
from vecmill_server.base.error_responses import (
    ERROR_BODY,
    SENTENCE_BODY,
    ErrorResponse,
    ErrorSpec,
    error_response,
    sentence_response,
)
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.json_schema import Component, Schema, any_of, without
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.composite_request import CompositeRequest as CompositeRequest
from vecmill_server.dialects.composite_request import CompositeResult as CompositeResult
from vecmill_server.dialects.fields import DialectOptions, Json, RequestBody
from vecmill_server.dialects.text_fields import MODEL
from vecmill_server.dialects.truncated_inputs import add_truncated

R = TypeVar("R")

# The paths that several APIs share.
EMBEDDINGS_PATHS = ("/v1/embeddings", "/embeddings")
# The paths of llama.cpp and Mixedbread.
RERANKING_PATHS = ("/reranking", "/v1/reranking")
# Those of Azure, for rerankers too.
_AZURE_RERANK_PATHS = ("/openai/v1/rerank", "/providers/cohere/v2/rerank")
RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank", *RERANKING_PATHS, *_AZURE_RERANK_PATHS)
TOKENIZE_PATHS = ("/tokenize", "/v1/tokenize")


@dataclass(frozen=True, slots=True)
class Marks:
    """The keys by which a body is known: one of `any_of`, none of `none_of`, and no marks of `after`.

    A key that is null counts, unless the body `needs_value`. Marks without `any_of` are those of all other
    bodies.
    """

    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    after: tuple["Marks", ...] = ()
    needs_value: bool = False

    def fit(self, json: Json) -> bool:
        """Return whether a body has the marks."""
        present = [name for name in self.any_of if name in json]
        is_marked = any(json[name] is not None for name in present) if self.needs_value else bool(present)
        return (
            (is_marked or not self.any_of)
            and json.keys().isdisjoint(self.none_of)
            and not any(other.fit(json) for other in self.after)
        )

    def restrict(self, schema: Schema) -> Schema:
        """Return the schema of a body, restricted to bodies with the marks."""
        absent = (*(name for other in self.after for name in other.any_of), *self.none_of)
        rules: list[Mapping[str, Any]] = [without(*absent)] if absent else []
        if not set(self.any_of) <= set(schema.get("required", ())):
            rules.append(any_of(*({"required": [name]} for name in self.any_of)))
        if not rules:
            return schema
        if len(rules) == 1 and "allOf" not in schema:
            return {**schema, **rules[0]}
        return {**schema, "allOf": [*schema.get("allOf", ()), *rules]}


LLAMA_EMBEDDINGS = Marks(("content",), none_of=("input",))

TEI_RERANK = Marks(("texts",), needs_value=True)
VOYAGE_RERANK = Marks(("truncation", "top_k"), after=(TEI_RERANK,))
WEAVIATE_RERANK = Marks(("property",), after=(TEI_RERANK, VOYAGE_RERANK))
MIXEDBREAD_RERANK = Marks(("input",), none_of=("documents", "texts"))
OTHER_RERANK = Marks(after=(TEI_RERANK, VOYAGE_RERANK, WEAVIATE_RERANK))

TEI_TOKENIZE = Marks(("inputs",))
COHERE_TOKENIZE = Marks(("text",), after=(TEI_TOKENIZE,))
LLAMA_TOKENIZE = Marks(("content",), none_of=("prompt",), after=(TEI_TOKENIZE, COHERE_TOKENIZE))
OTHER_TOKENIZE = Marks(after=(TEI_TOKENIZE, COHERE_TOKENIZE))


@dataclass(slots=True)  # made for each request, and frozen objects take several times as long
class Envelope:
    """The fields around the results of a response. `created` is a Unix time in seconds."""

    request_id: str
    model: str
    created: int

    def around(self, kind: str, prefix: str, tokens: int, **data: Any) -> dict[str, Any]:
        """Return a response with `data` in OpenAI's or vLLM's envelope.

        `kind` is the value of `object`. The id is `prefix` followed by the id of the request.
        """
        return {
            "id": f"{prefix}-{self.request_id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            **data,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }


JSON = b"application/json"


@dataclass(slots=True)
class WrittenBody:
    """The body of a response, which is all `pieces` together, and the headers that describe the response."""

    pieces: list[bytes]
    headers: HeaderList = field(default_factory=list)
    content_type: bytes = JSON


# Writes the result of a request as JSON.
Write = Callable[[Any, Envelope], JsonValue]
# Writes the result of a request as bytes.
WriteRaw = Callable[[Any, Envelope], WrittenBody]


@dataclass(slots=True)
class Asked:
    """A request body after reading: the request for `model`, and the function that writes its result.

    `write_raw`, unless it is `None`, writes the response instead where it need not be JSON. `field_names`
    maps the library's names of fields to the client's names. `keep_s` is how long the client asks to keep
    the model in memory, `None` if it does not ask.
    """

    model: str | None
    request: Request[Any]
    write: Write = field(compare=False)
    field_names: Mapping[str, str] = field(default_factory=dict)
    write_raw: WriteRaw | None = field(default=None, compare=False)
    keep_s: float | None = None

    def write_document(self, result: Result, envelope: Envelope) -> JsonValue:
        """Return the JSON of the response, with the inputs that were cut."""
        document = self.write(result, envelope)
        return add_truncated(document, result) if result.truncated else document

    def caller(
        self,
        timeout_s: float | None = None,
        client: str | None = None,
        priority: Priority | None = None,
        timeline: Timeline | None = None,
        owner: str | None = None,
        fetch: FetchPictures | None = None,
    ) -> Caller:
        """Return who asks. The time limit and the priority are by default those of the body."""
        request = self.request
        return Caller(
            priority or request.priority,
            request.timeout_s if timeout_s is None else timeout_s,
            client,
            owner,
            timeline,
            fetch=fetch,
        )

    def start(self, mill: Mill, caller: Caller) -> Awaitable[Any]:
        """Return what gives the result when it is awaited. Raises the same errors as `Mill.run`."""
        request = self.request
        if isinstance(request, CompositeRequest):
            return request.run(mill, caller)
        return mill.answer(request, caller)

    async def run(self, mill: Mill, caller: Caller) -> Any:
        """Return the result. Raises the same errors as `Mill.run`, with the client's field names."""
        try:
            return await self.start(mill, caller)
        except RequestError as error:
            error.rename_fields(self.field_names)
            raise


@dataclass(frozen=True, slots=True)
class ResponseStyle:
    """The errors and the timing headers of an API.

    `write_headers` returns the headers for the request, its result and the device, as lines.
    `header_names` are their names.
    """

    error_body: Component
    respond: Callable[[BaseException], ErrorResponse]
    status_of: Callable[[ErrorSpec], int]
    write_headers: Callable[[Request[Any], Result, str], bytes]
    header_names: tuple[str, ...]


def _usual_status(spec: ErrorSpec) -> int:
    return spec.status


_USUAL_NAMES = ("x-compute-time", "server-timing")
TEI_HEADERS = (
    "x-compute-type",
    "x-compute-characters",
    "x-compute-tokens",
    "x-compute-time",
    "x-total-time",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
)
ALL_HEADERS = (*TEI_HEADERS, "server-timing")


# One format writes all lines, in a fraction of the time that one for each header takes. Times are in
# milliseconds, those of Text Embeddings Inference whole ones.
_SERVER_TIMING = b"server-timing: tokenize;dur=%.3f, queue;dur=%.3f, inference;dur=%.3f, total;dur=%.3f\r\n"
_USUAL_LINES = b"x-compute-time: %.6f\r\n" + _SERVER_TIMING
_TEI_LINES = b"".join(
    b"%b: %b\r\n" % (name.encode(), b"%b" if name == TEI_HEADERS[0] else b"%.0f") for name in TEI_HEADERS
)
_ALL_LINES = _TEI_LINES + _SERVER_TIMING


def _in_ms(timings: Timings) -> tuple[float, float, float, float]:
    return (
        timings.tokenize_s * 1000,
        timings.queue_s * 1000,
        timings.inference_s * 1000,
        timings.total_s * 1000,
    )


def _write_usual(_request: Request[Any], result: Result, _device: str) -> bytes:
    """Write `x-compute-time` in seconds and `Server-Timing`."""
    return _USUAL_LINES % (result.timings.inference_s, *_in_ms(result.timings))


def write_tei_headers(request: Request[Any], result: Result, device: str) -> bytes:
    """Write the headers of Text Embeddings Inference."""
    tokenize, queue, inference, total = _in_ms(result.timings)
    sizes = sum(request.sizes), result.token_count
    return _TEI_LINES % (device.encode("ascii"), *sizes, total, total, tokenize, queue, inference)


def write_all_headers(request: Request[Any], result: Result, device: str) -> bytes:
    """Write those of Text Embeddings Inference and `Server-Timing`."""
    tokenize, queue, inference, total = times = _in_ms(result.timings)
    sizes = sum(request.sizes), result.token_count
    return _ALL_LINES % (device.encode("ascii"), *sizes, total, total, tokenize, queue, inference, *times)


USUAL_STYLE = ResponseStyle(ERROR_BODY, error_response, _usual_status, _write_usual, _USUAL_NAMES)
# For clients that read a sentence at `error`.
SENTENCE_STYLE = replace(USUAL_STYLE, error_body=SENTENCE_BODY, respond=sentence_response)


class InferenceBody(RequestBody):
    """The body of a request for a computation, in one dialect. Subclasses read and describe the body.

    `responses` are the schemas of the responses. Requests with `needs_engine` may be refused before they are
    read, if the engine has too much to do. Those with `needs_model` need a loaded model. With
    `loads_for_admin`, an admin key has the model loaded, and served again if it was removed. `priority` and
    `keep_s` are fields of the APIs whose clients can say them. `also_read` names fields that are read but not
    described by the class. `known` names all fields that are read or harmless. `marks` tell the body from
    others at the same path. The responses to bodies that `may_be_raw` are raw bytes if the client prefers
    them.
    """

    model = MODEL
    priority: ClassVar[Any] = None
    keep_s: ClassVar[Any] = None
    needs_engine: ClassVar[bool] = True
    needs_model: ClassVar[bool] = True
    loads_for_admin: ClassVar[bool] = False
    style: ClassVar[ResponseStyle] = USUAL_STYLE
    responses: ClassVar[tuple[Any, ...]] = ()
    also_read: ClassVar[frozenset[str]] = frozenset()
    known: ClassVar[frozenset[str]] = frozenset()
    marks: ClassVar[Marks] = Marks()
    may_be_raw: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.known = cls.also_read.union(cls.harmless, *(field.properties for field in cls.fields()))

    @classmethod
    def schema(cls, settings: ServerSettings) -> Schema:
        """Return the JSON Schema of the body, which a body with the marks of another does not match."""
        return cls.marks.restrict(super().schema(settings))

    @classmethod
    def parse(cls, json: Json, options: DialectOptions) -> Asked:
        """Read the body. Raises `InvalidRequest`."""
        asked = cls(json, options).read()
        for picture in asked.request.pictures:
            if isinstance(picture, PictureUrl):
                options.picture_hosts.check(picture)
        return asked

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        """Return the names of the fields of the body that no client of this API has."""
        return [] if cls.known.issuperset(json) else [name for name in json if name not in cls.known]

    def read(self) -> Asked:
        """Return the request for the model and the function that writes its result.

        Raises `InvalidRequest`.
        """
        raise NotImplementedError

    def asked(self, request: Request[Any], write: Write, **field_names: str) -> Asked:
        """Return a request for the body's model. Raises `InvalidRequest`."""
        priority = self.priority
        if priority is not None:
            request = replace(request, priority=priority)
        return Asked(self.model, request, write, field_names, keep_s=self.keep_s)


# Tells which of several bodies a JSON object is. Raises `UnknownModel`.
Choose = Callable[[Json, DialectOptions], type[InferenceBody]]


def choose_by_marks(usual: type[InferenceBody], marked: list[type[InferenceBody]]) -> Choose:
    """Return the choice of the body whose marks a JSON object has, by default of the usual one."""
    marks = frozenset(name for body in marked for name in body.marks.any_of)

    def choose(json: Json, _options: DialectOptions) -> type[InferenceBody]:
        if marks.isdisjoint(json):
            return usual
        return next((body for body in marked if body.marks.fit(json)), usual)

    return choose


@dataclass(frozen=True, slots=True)
class InferenceRoute:
    """Paths that accept one or several kinds of bodies. `choose` selects the kind.

    `name` is the route's label in metrics. If several routes share a path, the one whose body has the marks
    reads a JSON object. The usual route, whose body needs no key, reads all others, and answers bodies that
    are not JSON.
    """

    name: str
    paths: tuple[str, ...]
    summary: str
    bodies: tuple[type[InferenceBody], ...]
    choose: Choose | None = None

    @property
    def is_usual(self) -> bool:
        """True if the route reads the bodies that no other route at its paths reads."""
        return not self.bodies[0].marks.any_of

    @property
    def only_style(self) -> ResponseStyle | None:
        """The style of all bodies of the route; `None` if the bodies are of APIs with different styles."""
        styles = {body.style for body in self.bodies}
        return next(iter(styles)) if len(styles) == 1 else None
