"""A loaded model, as the operations use it: its sides, limits, threads and embedding cache.

It is complete when it is made, and nothing of it is replaced afterwards.

Plans. How the texts of a request are read depends on the model and on the options of the request alone: the
side, the prompt with its tokens, the truncation. Such a plan is made for the first request with these options
and kept for the others. Options in the client's own words or numbers, of which there are as many as a client
likes, are planned for each request, so that they neither fill the memory nor drive out other plans.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import cast

from vecmill.batching.dispatcher import Dispatcher
from vecmill.models import ModelDescription, Task
from vecmill.operations.answer_spaces import AnswerSpaces
from vecmill.operations.cache_keys import KeyedCache
from vecmill.operations.capabilities import require_dimensions, require_task, require_unfinished
from vecmill.operations.limits import Limits
from vecmill.operations.output_ranges import SampleEmbeddings
from vecmill.operations.result_threads import ResultThreads
from vecmill.operations.sides import PictureSide, Side, find_route
from vecmill.operations.text_stages import MeanStages
from vecmill.operations.tokenizer_threads import TokenizerThreads
from vecmill.requests import Embed, Purpose, TextOptions, TextOrIds, Truncation
from vecmill.tokenization.listwise_inputs import ListwiseTokenizer
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import Slices, complete
from vecmill.tokenization.prompts import Prompt, default_prompt, find_prompt
from vecmill.tokenization.tokenizer import TextRules, Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.clock import Clock
from vecmill.values.observer import Observer
from vecmill.values.side_names import SideName

MOST_PLANS = 256
# The tokens of a longer prompt are counted with its texts, off the event loop.
LONGEST_READ_PROMPT = 256


@dataclass(frozen=True, slots=True)
class TextPlan:
    """How the texts of requests with the same options are read.

    `truncation` says whether texts that are too long are refused. `rules` are those for short texts, `None`
    with a prompt whose tokens are not known: a long one, or one in the client's own words, which is read with
    its texts, when the queue has room for them.
    """

    side: Side
    route: Purpose
    prompt: Prompt
    truncation: Truncation
    rules: TextRules | None

    def encode_in_slices(self, inputs: Sequence[TextOrIds]) -> Slices[list[TokenSequence]]:
        """Encode inputs in slices."""
        return self.side.encode_in_slices(inputs, prompt=self.prompt, truncation=self.truncation)

    def encode_now(self, inputs: Sequence[TextOrIds]) -> list[TokenSequence]:
        """Encode inputs at once, whose texts are short together with their prompts."""
        if self.rules is None or {*map(type, inputs)} != {str}:
            return complete(self.encode_in_slices(inputs))
        sequences = self.side.tokenizer.encode_short(cast(Sequence[str], inputs), self.rules)
        side = self.side
        is_plain = side.name is SideName.DOCUMENTS and side.padding is None
        return sequences if is_plain else side.mark(sequences)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A loaded model. Use from one event loop.

    `queries` is the side of the queries if they have one of their own, `pictures` that of pictures. `pairs`
    reads the pairs of a reranker or a classifier, `lists` the lists of a listwise reranker. `cache` is the
    embedding cache, if there is one, and `spaces` are those of the answers. `is_unit` tells whether
    embeddings have length 1. `mean_stages` are those of each route whose means were asked for.
    """

    description: ModelDescription
    documents: Side
    queries: Side | None
    pictures: PictureSide | None
    pairs: PairTokenizer | None
    listwise: ListwiseTokenizer | None
    limits: Limits
    texts: TokenizerThreads
    results: ResultThreads
    sample: SampleEmbeddings
    cache: KeyedCache | None
    spaces: AnswerSpaces
    observer: Observer
    clock: Clock
    longest_s: float
    is_unit: bool
    mean_stages: dict[Purpose, MeanStages] = field(default_factory=dict, repr=False)
    plans: dict[TextOptions, TextPlan] = field(default_factory=dict, repr=False)

    def plan(self, options: TextOptions) -> TextPlan:
        """Return how texts with these options are read. Raises the errors of `find_route` and `prompt`."""
        plan = self.plans.get(options)
        if plan is None:
            is_kept = _is_named(options)
            plan = self._make_plan(options, reads_prompt=is_kept)
            if is_kept:
                if len(self.plans) == MOST_PLANS:
                    self.plans.clear()
                self.plans[options] = plan
        return plan

    def plan_dense(self, request: Embed) -> TextPlan:
        """Return how the texts of a request for dense embeddings are read.

        Raises the errors of `plan`, and `UnsupportedTask` if the model embeds no texts, or if it is asked to
        leave out a normalisation that is part of its graph.
        """
        description = self.description
        if description.task is not Task.EMBED:
            require_task(description, Task.EMBED, asked="embed texts")
        if request.dimensions is not None:
            require_dimensions(request.dimensions, description)
        plan = self.plan(request.options)
        if request.normalize is False and description.normalize:
            info, asked = plan.side.dispatcher.info, "leave out its normalisation"
            require_unfinished(description, info, asked=asked, field="normalize")
        return plan

    def _make_plan(self, options: TextOptions, *, reads_prompt: bool) -> TextPlan:
        route = find_route(self.description, options)
        side, prompt, truncation = self.side_of(route), self.prompt(options), self.truncation(options)
        rules = None
        if reads_prompt and len(prompt.text) <= LONGEST_READ_PROMPT:
            length = complete(side.tokenizer.prompt_length_in_slices(prompt.text)) if prompt.text else 0
            longest = side.tokenizer.longest(truncation)
            rules = TextRules(prompt.text, length, prompt.adapter, truncation, longest)
        return TextPlan(side, route, prompt, truncation, rules)

    def side_of(self, route: Purpose) -> Side:
        """Return the side to which texts of this route belong."""
        return self.queries if route is Purpose.QUERY and self.queries is not None else self.documents

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the documents."""
        return self.documents.tokenizer

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of the documents."""
        return self.documents.dispatcher

    @property
    def dispatchers(self) -> tuple[Dispatcher, ...]:
        """The dispatchers of all sides, that of documents first."""
        sides = (self.documents, self.queries, self.pictures)
        return tuple(side.dispatcher for side in sides if side is not None)

    def dispatcher_of(self, name: SideName) -> Dispatcher:
        """Return the dispatcher of a side that the model has."""
        side = {
            SideName.DOCUMENTS: self.documents,
            SideName.QUERIES: self.queries,
            SideName.PICTURES: self.pictures,
        }[name]
        assert side is not None
        return side.dispatcher

    def prompt(self, options: TextOptions) -> Prompt:
        """Return the prompt for each text, with its adapter. Raises the same errors as `find_prompt`."""
        description = self.description
        default, adapters = default_prompt(description), description.encoder.adapters
        return find_prompt(description.prompts, default, options, adapters)

    def truncation(self, options: TextOptions) -> Truncation:
        """Return the truncation of texts, with the decision whether texts that are too long are refused."""
        return self.limits.decide_truncation(options.truncation)

    def start(self) -> None:
        """Start the dispatchers."""
        for each in self.dispatchers:
            each.start()

    async def close(self) -> None:
        """Close the dispatchers, and stop tokenising, measuring and finishing results."""
        async with AsyncExitStack() as closing:  # the next one too if the call is cancelled
            for stop in (self.results.close, self.texts.close, self.sample.close):
                closing.callback(stop)
            for each in self.dispatchers:
                closing.push_async_callback(each.close)
            if self.pictures is not None:
                closing.push_async_callback(self.pictures.decoder.close)


def _is_named(options: TextOptions) -> bool:
    """Return whether options say only what the model names, so that there are few of them."""
    numbers = (options.truncation.max_tokens, options.query_tokens, options.document_tokens)
    return options.prompt is None and numbers == (None, None, None)
