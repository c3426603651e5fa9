"""The sides of a model, and the route of each text.

Queries and documents of an asymmetric model have a tokenizer, an engine and a queue each. Other models have
one side, that of documents. So a batch never has texts of both sides,
a full queue of documents refuses no query, and all limits on texts hold for both.

If queries are looked up in a table, their engine takes microseconds. It has a core budget of its own, so that
no query waits for a core that computes documents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vecmill.architectures.towers import PictureTowerConfig
from vecmill.batching.dispatcher import Dispatcher
from vecmill.config import MillConfig, default_cache_dir
from vecmill.engines import default_engine
from vecmill.engines.base import Engine
from vecmill.engines.table import TableEngine
from vecmill.errors import CorruptModel, InvalidRequest
from vecmill.models import ModelDescription
from vecmill.models.description import PictureTower
from vecmill.models.label_scale import LabelScale
from vecmill.requests import Purpose, TextOptions, TextOrIds, Truncation
from vecmill.tokenization.pairs import encode_inputs
from vecmill.tokenization.pieces import MOST_COUNTED, Slices
from vecmill.tokenization.prompts import Prompt
from vecmill.tokenization.text_padding import TextPadding
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.side_names import SideName

if TYPE_CHECKING:
    from vecmill.pictures.picture_decoder import PictureDecoder


def find_route(description: ModelDescription, options: TextOptions) -> Purpose:
    """Return whether texts are embedded as queries or as documents. Without a router all are documents.

    The purpose decides, or the name of the prompt if it is that of a route, else the default route. Raises
    `InvalidRequest` for other purposes, and if there is no default.
    """
    router, purpose = description.router, options.purpose
    if router is None or purpose in (Purpose.QUERY, Purpose.DOCUMENT):
        return Purpose.DOCUMENT if router is None or purpose is None else purpose
    if purpose is not None:
        raise InvalidRequest(
            f"`input_type` is {purpose.value}; this model embeds queries and documents, and "
            "has no other way.",
            field="input_type",
        )
    if options.prompt_name in (Purpose.QUERY, Purpose.DOCUMENT):
        return Purpose(options.prompt_name)
    if router.default is None:
        raise InvalidRequest(
            "`input_type` is missing: this model embeds queries and documents in different ways, and has no "
            "default. Send `query` or `document`.",
            field="input_type",
        )
    return router.default


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a loaded model: its description and tokenizer, and the dispatcher of its engine.

    `name` tells whether it is that of the documents, or that of the queries if these have one of their own.
    `padding` is that of its texts, if they are padded.
    """

    description: ModelDescription
    tokenizer: Tokenizer
    dispatcher: Dispatcher
    name: SideName = SideName.DOCUMENTS
    padding: TextPadding | None = None

    def encode_in_slices(
        self, inputs: Sequence[TextOrIds], *, prompt: Prompt, truncation: Truncation
    ) -> Slices[list[TokenSequence]]:
        """Encode inputs in slices, and mark those of another side than documents."""
        sequences = yield from encode_inputs(
            self.tokenizer, None, inputs, prompt=prompt, truncation=truncation
        )
        return self.mark(sequences)

    def mark(self, sequences: list[TokenSequence]) -> list[TokenSequence]:
        """Return the sequences of texts of this side, padded if it pads, and marked unless documents."""
        if self.padding is not None:
            sequences = self.padding.pad(sequences)
        if self.name is SideName.DOCUMENTS:
            return sequences
        return [replace(each, side=self.name) for each in sequences]


@dataclass(frozen=True, slots=True)
class PictureSide:
    """The side of the pictures: their encoder, the decoder of files, and the dispatcher of the engine.

    `scale` makes scores of labels, and is `None` if the model has no numbers for it.
    """

    tower: PictureTower
    encoder: PictureTowerConfig
    decoder: "PictureDecoder"
    dispatcher: Dispatcher
    scale: LabelScale | None = None

    @classmethod
    def of(
        cls,
        tower: PictureTower,
        decoder: "PictureDecoder",
        dispatcher: Dispatcher,
        scale: LabelScale | None = None,
    ) -> "PictureSide":
        """Make the side of an encoder of pictures."""
        encoder = tower.encoder.encoder
        assert isinstance(encoder, PictureTowerConfig)
        return cls(tower, encoder, decoder, dispatcher, scale)


# Loads an encoder by its plan, such as `load_engine`.
LoadEngine = Callable[..., Engine]


def load_query_engine(
    description: ModelDescription, config: MillConfig, load: LoadEngine, *, cores: int
) -> Engine:
    """Load the table of queries, or their encoder by `load`. Raises `SetupError`.

    A plan that `vecmill optimize` has chosen is that of the documents. Queries are computed as `config` says.
    """
    if description.is_table:
        return TableEngine.load(description)
    plan = config.plan(config.engine or default_engine(description))
    cache_dir = config.cache_dir or default_cache_dir()
    return load(description, plan, cores=cores, cache_dir=cache_dir)


def load_query_tokenizer(description: ModelDescription, most_counted: int = MOST_COUNTED) -> Tokenizer:
    """Load the tokenizer of queries. Raises `SetupError`, also if a token has no entry in the table."""
    tokenizer = Tokenizer.load(description, most_counted=most_counted)
    if not description.is_table:
        return tokenizer
    if tokenizer.highest_id >= description.vocab_size:
        raise CorruptModel(
            f"{description.tokenizer_file} has token ids up to {tokenizer.highest_id}, but "
            f"{description.weights_files[0]} has only {description.vocab_size} entries."
        )
    return tokenizer
