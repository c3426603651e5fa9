"""One load of a model, from its description to a model that answers requests.

The engine and the tokenizer load side by side, while the space of the vectors is identified. Then the engine
is checked and its cost is measured, and the queries of an asymmetric model are loaded.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from vecmill.batching.dispatcher import Dispatcher
from vecmill.config import MillConfig, default_cache_dir
from vecmill.directory_layouts import describe_model
from vecmill.engines import default_engine, load_engine
from vecmill.engines.base import Engine
from vecmill.engines.kept_models import keep_name
from vecmill.errors import InvalidConfig
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.priority import call_with_low_priority
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.models.description import PictureTower
from vecmill.models.fingerprint import GRAPH_VERSION
from vecmill.models.label_scale import LabelScale, read_label_scale
from vecmill.models.space import ModelIdentity, ModelSpace
from vecmill.operations.answer_spaces import AnswerSpaces
from vecmill.operations.cache_keys import KeyedCache
from vecmill.operations.limits import Limits
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.output_ranges import KeptSamples, Quiet, SampleEmbeddings
from vecmill.operations.result_threads import ResultThreads
from vecmill.operations.sides import PictureSide, Side, load_query_engine, load_query_tokenizer
from vecmill.operations.tokenizer_threads import TokenizerThreads
from vecmill.requests import Purpose
from vecmill.serving_plan.choice_at_load import plan_model
from vecmill.serving_plan.identity import (
    describe_computation,
    identify_settings,
    identify_space,
    reads_weights,
)
from vecmill.serving_plan.plans import Accuracy
from vecmill.tokenization.input_readers import make_readers
from vecmill.tokenization.shared import SharedTokenizers
from vecmill.tokenization.text_padding import TextPadding
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.clock import Clock
from vecmill.values.embedding_cache import EmbeddingCache
from vecmill.values.engine_plan import DEFAULT_ENGINE, CostModel, EngineInfo
from vecmill.values.observer import Observer
from vecmill.values.side_names import SideName
from vecmill.verification.precision_gate import load_gated_engine
from vecmill.verification.self_check import Samples, start_engine

# Processes that decode pictures, so that a file that takes seconds holds up no other.
DECODERS = 2

logger = logging.getLogger(__name__)

# A third of the time of each thread that shares the core. With less, a busy machine would hardly ever finish.
PREPARING_NICENESS = 5

ModelSource = str | Path | ModelDescription | Callable[[], ModelDescription]


def check_settings(model: object, config: object) -> None:
    """Raise `InvalidConfig`, which says what to write, for arguments of `Mill` of a wrong type."""
    if isinstance(model, MillConfig):
        raise InvalidConfig(
            "The first argument is the model. Give settings by name: `config=MillConfig(...)`."
        )
    if isinstance(model, type) or not (
        model is None or isinstance(model, str | Path | ModelDescription) or callable(model)
    ):
        raise InvalidConfig(
            f"The model is of type {type(model).__name__}. Give a directory, or a name on a hub such as "
            "'owner/name'; without a model, all-MiniLM-L6-v2 is loaded."
        )
    if not isinstance(config, MillConfig | None):
        raise InvalidConfig(
            f"`config` is of type {type(config).__name__}. Give a MillConfig, such as "
            'MillConfig(precision="int8").'
        )


def read_description(model: ModelSource | None) -> ModelDescription:
    """Find a model, and read its settings. Raises `SetupError`."""
    if isinstance(model, ModelDescription):
        return model
    return model() if callable(model) else describe_model(locate_model(model))


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What a model is loaded with, beside its files; see `Mill`."""

    config: MillConfig
    engine: Engine | None
    budget: CoreBudget
    tokenizers: SharedTokenizers | None
    observer: Observer
    clock: Clock


class ModelLoad:
    """One load. Whoever makes it closes it, also after an error.

    `cost` is that of the engine's calls, measured unless it is given. `accuracy` is what `vecmill optimize`
    measured for the plan.
    """

    def __init__(
        self,
        description: ModelDescription,
        settings: LoadSettings,
        *,
        cost: CostModel | None = None,
        embedding_cache: EmbeddingCache | None = None,
    ) -> None:
        self.engine: Engine | None = None
        self.query_engine: Engine | None = None  # of the queries of an asymmetric model
        self.picture_engine: Engine | None = None
        self.cost = cost
        self.accuracy: Accuracy | None = None
        self._description = description
        self._settings = settings
        self._config = settings.config
        self._embedding_cache = embedding_cache
        self._cache_dir: Path | None = None  # of an engine that the configuration names
        self._tokenizer: Future[Tokenizer] = Future()

    @property
    def query_info(self) -> EngineInfo | None:
        """The properties of the engine of queries, if there is one."""
        return None if self.query_engine is None else self.query_engine.info

    @property
    def picture_info(self) -> EngineInfo | None:
        """The properties of the engine of pictures, if there is one."""
        return None if self.picture_engine is None else self.picture_engine.info

    async def run(self) -> LoadedModel:
        """Load the model. Raises `SetupError`, or the error of what loads it."""
        description, config = self._description, self._config
        for assumption in description.assumptions:
            logger.warning("%s", assumption)
        identifying = asyncio.ensure_future(asyncio.to_thread(self._identify_space))
        try:
            engine, cost, tokenizer = await self._start_engine()
            readers = make_readers(description, tokenizer)
            queries = None
            if description.router is not None:
                queries = await asyncio.to_thread(self._load_queries, description.router.query)
            tower = description.pictures
            of_pictures = None if tower is None else await asyncio.to_thread(self._load_pictures, tower)
        except BaseException:  # the error of an engine, also if the weights cannot be identified either
            identifying.cancel()
            identifying.add_done_callback(_ignore_error)
            self._tokenizer.cancel()  # or the thread would wait for a tokenizer that nobody loads any more
            raise
        space = await identifying
        # From here on nothing is awaited: a request finds all that it needs, or the model is not ready.
        dispatcher = self._make_dispatcher(engine, cost, self._settings.budget)
        padding = TextPadding.of(description, tokenizer.library)
        documents, query_side = Side(description, tokenizer, dispatcher, padding=padding), None
        if queries is not None:
            query_side = self._make_query_side(*queries, first_lane=len(dispatcher.lanes.all))
        pictures = None
        if tower is not None and of_pictures is not None:
            pictures = self._make_picture_side(tower, *of_pictures, first_lane=len(dispatcher.lanes.all))
        computation = describe_computation(engine.info, self.query_info, keeps_end=tokenizer.truncates_left)
        identity = ModelIdentity.of(space, computation)
        observer, clock = self._settings.observer, self._settings.clock
        return LoadedModel(
            description,
            documents,
            query_side,
            pictures,
            readers.pairs,
            readers.listwise,
            limits=Limits(config.inputs),
            texts=TokenizerThreads.of(config.inputs, observer=observer, clock=clock),
            results=ResultThreads(),
            sample=self._make_sample(documents, None if query_side is None else Purpose.DOCUMENT),
            cache=self._make_cache(identity),
            spaces=AnswerSpaces(description, identity),
            observer=observer,
            clock=clock,
            longest_s=config.queue.longest_s,
            is_unit=description.normalize,
        )

    async def prepare(self) -> None:
        """Prepare the files of the model at low priority.

        For engines whose threads would keep the low priority, nothing is prepared.
        """
        await call_with_low_priority(self._prepare, "vecmill-prepare", PREPARING_NICENESS)

    def _prepare(self) -> None:
        given, config = self._settings.engine, self._config
        if given is None and plan_model(self._description, config).plan.engine == DEFAULT_ENGINE:
            self.open_engine().close()

    async def close(self) -> None:
        """Close the engines."""
        for engine in (self.engine, self.query_engine, self.picture_engine):
            if engine is not None:
                await asyncio.to_thread(engine.close)

    def open_engine(self) -> Engine:
        """Open the engine, whose files are prepared first if they are not yet. Blocks."""
        description, given = self._description, self._settings.engine
        if given is not None:
            return given
        served = plan_model(description, self._config)
        self.accuracy = served.accuracy
        # The folder of an optimised plan is not written to after it was made.
        self._cache_dir = self._config.cache_dir or default_cache_dir()
        # An optimised plan passed the precision check when it was optimised.
        load = load_gated_engine if served.accuracy is None else load_engine
        cores = self._settings.budget.total
        engine = load(description, served.plan, cores=cores, cache_dir=served.cache_dir)
        if served.accuracy is None:
            keep_name(description, served.cache_dir)
        return engine

    async def _start_engine(self) -> tuple[Engine, CostModel, Tokenizer]:
        """Load the engine and the tokenizer. Check the engine, and measure its cost."""
        engine, tokenizer = await asyncio.gather(
            asyncio.to_thread(self.open_engine), asyncio.to_thread(self._load_tokenizer)
        )
        try:
            budget = self._settings.budget
            cost = await asyncio.to_thread(self._check_engine, engine, tokenizer, budget)
        finally:
            self.engine = engine  # which is closed in the end, also if it cannot start
        self.cost = cost
        return engine, cost, tokenizer

    def _check_engine(self, engine: Engine, tokenizer: Tokenizer, budget: CoreBudget) -> CostModel:
        """Check the engine, and measure its cost unless it is known. Blocks, with the tokenizer too."""
        return start_engine(
            self._description, engine, Samples.of_texts(tokenizer, self._description), budget, self.cost
        )

    def _load_tokenizer(self) -> Tokenizer:
        """Load the tokenizer, which the identification of the space waits for too."""
        if not self._tokenizer.set_running_or_notify_cancel():
            raise CancelledError
        try:
            most = self._config.inputs.max_counted_characters
            tokenizer = Tokenizer.load(self._description, self._settings.tokenizers, most_counted=most)
        except BaseException as error:
            self._tokenizer.set_exception(error)
            raise
        self._tokenizer.set_result(tokenizer)
        return tokenizer

    def _identify_space(self) -> ModelSpace:
        """Identify the space while the engine loads; waits for the tokenizer."""

        def load_tokenizer(_description: ModelDescription) -> object:
            return self._tokenizer.result().library

        description, given = self._description, self._settings.engine
        engine = given.info.name if given is not None else self._config.engine or default_engine(description)
        if not reads_weights(engine):
            return identify_settings(description, load_tokenizer)
        return identify_space(
            description,
            self._config.cache_dir or default_cache_dir(),
            load_tokenizer=load_tokenizer,
            cores=self._settings.budget.total,
        )

    def _make_sample(self, side: Side, purpose: Purpose | None) -> SampleEmbeddings:
        """Return the sample embeddings of `side`, kept in the folder of prepared models if there is one."""
        kept = None
        if self._cache_dir is not None:
            kept = KeptSamples(self._cache_dir, side.description, side.dispatcher.info)
        quiet = Quiet(side.dispatcher.scheduler, self._settings.clock)
        return SampleEmbeddings(self._config.inputs, quiet, kept, purpose)

    def _make_cache(self, identity: ModelIdentity) -> KeyedCache | None:
        if self._embedding_cache is None or self._description.task is not Task.EMBED:
            return None
        name = self._identify_embeddings(identity)
        return KeyedCache(self._embedding_cache, name, self._settings.observer, self._settings.clock)

    def _identify_embeddings(self, identity: ModelIdentity) -> str:
        """Return a name of all that an embedding depends on, beside its input and its prompt.

        A new version of vecmill may compute other vectors of the same space, within the stated error.
        """
        devices = [engine.info.device for engine in (self.engine, self.query_engine) if engine is not None]
        of_pictures = self.picture_info
        pictures = of_pictures and (of_pictures.name, of_pictures.precision, of_pictures.device)
        return repr((identity.exact, devices, pictures, version("vecmill"), GRAPH_VERSION))

    def _load_queries(self, description: ModelDescription) -> tuple[ModelDescription, CostModel, Tokenizer]:
        """Load the table or the encoder of the queries, and their tokenizer. Blocks."""
        tokenizer = load_query_tokenizer(description, self._config.inputs.max_counted_characters)
        cores = self._settings.budget.total
        engine = load_query_engine(description, self._config, load_gated_engine, cores=cores)
        self.query_engine = engine
        cost = start_engine(
            description, engine, Samples.of_texts(tokenizer, description), self._settings.budget
        )
        return description, cost, tokenizer

    def _make_query_side(
        self, description: ModelDescription, cost: CostModel, tokenizer: Tokenizer, *, first_lane: int
    ) -> Side:
        """Return the side of the queries, whose lanes have the numbers from `first_lane` on."""
        assert self.query_engine is not None
        # A table needs a core for microseconds, and does not wait for those that compute documents.
        budget = CoreBudget(1) if description.is_table else self._settings.budget
        dispatcher = self._make_dispatcher(self.query_engine, cost, budget, first_lane=first_lane)
        return Side(description, tokenizer, dispatcher, SideName.QUERIES)

    def _load_pictures(self, tower: PictureTower) -> tuple[CostModel, LabelScale | None]:
        """Load the encoder of pictures, which computes in fp32. Blocks.

        Return the cost of its calls, and how scores of labels are made.
        """
        description, config = tower.encoder, self._config
        plan = replace(config.plan(config.engine or default_engine(description)), precision=None)
        cache_dir, budget = config.cache_dir or default_cache_dir(), self._settings.budget
        engine = load_engine(description, plan, cores=budget.total, cache_dir=cache_dir)
        self.picture_engine = engine
        cost = start_engine(description, engine, Samples.of_pictures(tower.encoder.encoder), budget)
        return cost, read_label_scale(description)

    def _make_picture_side(
        self, tower: PictureTower, cost: CostModel, scale: LabelScale | None, *, first_lane: int
    ) -> PictureSide:
        """Return the side of the pictures, whose lanes have the numbers from `first_lane` on."""
        from vecmill.pictures.picture_decoder import MAX_WAITING_BYTES, PictureDecoder  # few have pictures

        assert self.picture_engine is not None
        # A token of a picture takes more memory than one of a text.
        most = MAX_WAITING_BYTES // (tower.encoder.encoder.patch_values or 1)
        queue = self._config.queue
        config = replace(
            self._config, queue=replace(queue, max_queue_tokens=min(queue.max_queue_tokens, most))
        )
        dispatcher = self._make_dispatcher(
            self.picture_engine, cost, self._settings.budget, first_lane=first_lane, config=config
        )
        decoder = PictureDecoder(processes=DECODERS, clock=self._settings.clock)
        return PictureSide.of(tower, decoder, dispatcher, scale)

    def _make_dispatcher(
        self,
        engine: Engine,
        cost: CostModel,
        budget: CoreBudget,
        *,
        first_lane: int = 0,
        config: MillConfig | None = None,
    ) -> Dispatcher:
        return Dispatcher(
            engine,
            (config or self._config).sized_for(engine.info),
            budget=budget,
            observer=self._settings.observer,
            cost=cost,
            clock=self._settings.clock,
            first_lane=first_lane,
        )


def _ignore_error(task: "asyncio.Future[ModelSpace]") -> None:
    """Take the error of a task of which nobody needs the result, or asyncio logs it."""
    if not task.cancelled():
        task.exception()
