"""The loads of the comparison, and their texts: no text is longer than the model reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.classifier_inputs import make_texts
from bench.peers.models import MAX_TOKENS, PreparedModels
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill_server.bench.request_sets import TextSet, read_texts

SEED = 20_261_122
# As many as the generator sends before it begins again.
TEXTS = 2_000
# A slower peer is measured for longer: until so many requests have ended, and so many for each client.
LEAST_REQUESTS, LEAST_REQUESTS_A_CLIENT = 20, 5


@dataclass(frozen=True, slots=True)
class PeerLoad:
    """A closed loop of `clients`, each request with `batch` texts.

    `is_latency` tells whether the figure of the table is the median latency. Else it is texts per second.
    """

    name: str
    texts: str
    clients: int
    batch: int = 1

    @property
    def is_latency(self) -> bool:
        """Whether one client waits for one text."""
        return self.clients == 1

    @property
    def least_requests(self) -> int:
        """The number of requests below which a figure is that of too few."""
        return max(LEAST_REQUESTS, LEAST_REQUESTS_A_CLIENT * self.clients)

    @property
    def unit(self) -> str:
        """The unit of the figure."""
        return "ms" if self.is_latency else "texts/s"


def name_exact(tokens: int) -> str:
    """Return the name of the texts of `tokens` tokens, and of their load."""
    return f"{tokens} tokens"


def list_loads(tokens: int = MAX_TOKENS) -> tuple[PeerLoad, ...]:
    """Return the loads of a model that reads `tokens` tokens."""
    exact = name_exact(tokens)
    return (
        PeerLoad("short", TextSet.SHORT, 32),
        PeerLoad("50 words", TextSet.WORDS_50, 32),
        PeerLoad("mixed", TextSet.MIXED, 32),
        PeerLoad(exact, exact, 32),
        PeerLoad("32 mixed texts a request, 4 clients", TextSet.MIXED, 4, batch=32),
        PeerLoad("one client, short", TextSet.SHORT, 1),
        PeerLoad("one client, 50 words", TextSet.WORDS_50, 1),
        PeerLoad(f"one client, {exact}", exact, 1),
    )


class TextFiles:
    """A file for each text set, a text on each line, as `vecmill bench --texts` reads it."""

    def __init__(self, folder: Path, models: PreparedModels) -> None:
        self._folder = folder
        self._models = models

    def write(self, texts: str) -> Path:
        """Return the file of a text set, which is written the first time."""
        file = self._folder / f"{texts.replace(' ', '-')}.txt"
        if not file.exists():
            file.write_text("\n".join(self._draw(texts)), "utf-8")
        return file

    def read(self, texts: str) -> list[str]:
        """Return the texts of a text set."""
        return self.write(texts).read_text("utf-8").split("\n")

    def read_in_order(self, texts: str) -> list[str]:
        """Return the texts of a text set in the order in which `vecmill bench` sends them."""
        return read_texts(str(self.write(texts)), TEXTS, SEED)

    def _draw(self, texts: str) -> list[str]:
        if texts == name_exact(self._models.max_tokens):
            return self._draw_exact()
        return [self.cut(text) for text in read_texts(texts, TEXTS, SEED)]

    def _draw_exact(self) -> list[str]:
        """Raises `ValueError` for a model whose tokenizer divides the words that are one token of BERT's."""
        tokens = self._models.max_tokens
        texts = make_texts(SEED, tokens, TEXTS)
        lengths = {len(sequence) for sequence in self._tokenizer.encode(texts[:8])}
        if lengths != {tokens}:
            raise ValueError(
                f"texts of {tokens} tokens have {min(lengths)} to {max(lengths)} with this model"
            )
        return texts

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.load(describe_model(locate_model(self._models.source)))

    def cut(self, text: str) -> str:
        """Return as many first words of a text as stay below the tokens that the model reads.

        Servers truncate at different lengths, and some of them cannot be told where. So no text is longer.
        """
        words = text.split(" ")
        kept, above = 0, len(words) + 1
        while above - kept > 1:
            middle = (kept + above) // 2
            # The tokenizer truncates, so a text of `max_tokens` tokens may have had more.
            if len(self._tokenizer.encode([" ".join(words[:middle])])[0]) < self._models.max_tokens:
                kept = middle
            else:
                above = middle
        return " ".join(words[:kept])


def checked_texts(files: TextFiles, loads: Sequence[PeerLoad]) -> Sequence[str]:
    """Return the texts whose embeddings are compared with the reference: some of each text set."""
    sets = dict.fromkeys(load.texts for load in loads)
    return [text for texts in sets for text in files.read(texts)[:16]]
