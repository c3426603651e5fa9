"""Late chunking: embeddings of chunks from one reading of the whole text.

How it works. The text is read in windows (`late_windows`), and the embedding of a chunk is the mean of the
embeddings of its tokens. An embedding model then does what it does after its own mean (`text_stages`). The
chunks are cut by their tokens (`chunking` of the request), or are the inputs of the request, which are joined
to one text (`late_chunking`). Source: Günther et al. 2024, arXiv:2409.04701.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from vecmill.errors import InvalidRequest, UnsupportedTask
from vecmill.models import ModelDescription, Task
from vecmill.operations.capabilities import require_dimensions, require_unfinished
from vecmill.operations.computation import Computation, Work, compute
from vecmill.operations.late_windows import PooledTokens, Window, average_windows, cut_windows_in_slices
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.sides import Side, find_route
from vecmill.operations.text_stages import MeanStages
from vecmill.requests import Caller, Embed, Purpose, TextOptions, Truncation
from vecmill.results import EmbedResult
from vecmill.tokenization.late_interaction import side_prompt, skipped_ids
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.prompts import Prompt
from vecmill.tokenization.refusals import check_length
from vecmill.tokenization.whole_texts import TokenRange, WholeText, read_in_slices
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Output
from vecmill.values.side_names import SideName
from vecmill.vectors import dense, finish_embeddings, normalize_embeddings

# The text between two chunks of a client.
SEPARATOR = " "
# The fixed time of a chunk takes about as long as arithmetic on this many numbers.
CHUNK_NUMBERS = 5_000


@dataclass(frozen=True, slots=True)
class LateModel:
    """What late chunking needs of a model: the side and the prompt of the texts, and how to pool tokens.

    `stages` are those of an embedding model, `None` for a multi-vector model. Tokens with the ids `skipped`
    count only in chunks without others. `field` is the field of the request that asks for late chunking.
    """

    description: ModelDescription
    side: Side
    prompt: Prompt
    pooled: PooledTokens
    stages: MeanStages | None
    skipped: tuple[int, ...]
    room: int  # the longest input, in tokens

    def windows_in_slices(
        self, text: WholeText, chunks: Sequence[TokenRange], kept: npt.NDArray[np.bool_] | None = None
    ) -> Slices[list[Window]]:
        """Cut a text into windows, in slices. With `kept`, only these tokens may count."""
        if self.skipped:
            found = np.isin(text.ids, self.skipped, invert=True)
            kept = found if kept is None else found & kept
        return cut_windows_in_slices(text, chunks, self.pooled, room=self.room - len(text.frame), kept=kept)

    def finish(self, means: FloatArray, request: Embed) -> FloatArray:
        """Return the embeddings (n, dim) of means (n, width), normalised and truncated as requested."""
        is_unit = self.description.normalize
        rows = means if self.stages is None else self.stages.apply_after(means)
        if is_unit and request.normalize is not False:
            rows = normalize_embeddings(rows)
        return finish_embeddings(rows, request.dimensions, request.normalize, is_unit)


def find_late_model(loaded: LoadedModel, options: TextOptions, *, asked: str, field: str) -> LateModel:
    """Return what late chunking needs of the model, for texts with these options.

    Raises `UnsupportedTask`, which names the `field` that asks for late chunking, in words `asked`.
    """
    description = loaded.description
    if description.task is Task.MULTI_VECTOR:
        prompt = side_prompt(description, options.purpose or Purpose.DOCUMENT, options)
        pooled = PooledTokens(Output.USUAL, _same, frame=False, prompt=False)
        skipped = skipped_ids(description, loaded.tokenizer, Purpose.DOCUMENT)
        longest = loaded.tokenizer.longest(options.truncation)
        return LateModel(description, loaded.documents, prompt, pooled, None, skipped, longest)
    if description.task is not Task.EMBED:
        raise UnsupportedTask(
            f"{asked} needs a model that gives an embedding for each token, or the mean of these; "
            f"{description.name} does not. Leave it out, and each text is embedded alone.",
            field=field,
        )
    route = find_route(description, options)
    side = loaded.side_of(route)
    encoded = side.description
    stages = loaded.mean_stages.get(route) or MeanStages.of(encoded, asked=asked, name=field)
    loaded.mean_stages[route] = stages
    require_unfinished(encoded, side.dispatcher.info, asked="chunk late", field=field)
    if side.name is SideName.QUERIES and encoded.is_table:
        raise UnsupportedTask(
            f"{asked} reads texts with an encoder, and queries of this model are looked up in a table. Send "
            "`document` as `input_type`.",
            field=field,
        )
    pooled = PooledTokens(
        Output.HIDDEN_STATES, stages.apply_before, frame=True, prompt=stages.pooling.include_prompt
    )
    longest = side.tokenizer.longest(options.truncation)
    return LateModel(description, side, loaded.prompt(options), pooled, stages, (), longest)


def _same(rows: FloatArray) -> FloatArray:
    return rows


def average_texts(done: Computation, texts: Sequence[Sequence[Window]], counts: Sequence[int]) -> FloatArray:
    """Return the means of the chunks of all texts: (chunks, width), from the sums of their windows.

    `counts` are the numbers of chunks of the texts.
    """
    sums = list(map(dense, done.embeddings))
    ends = list(accumulate(map(len, texts), initial=0))
    return np.concatenate(
        [
            average_windows(windows, sums[first:last], count)
            for windows, (first, last), count in zip(texts, pairwise(ends), counts, strict=True)
        ]
    )


async def embed_joined(loaded: LoadedModel, request: Embed, caller: Caller) -> EmbedResult:
    """Return one embedding for each input; all inputs are encoded together.

    Raises the same errors as `Mill.run`.
    """
    model = find_late_model(loaded, request.options, asked="`late_chunking`", field="late_chunking")
    require_dimensions(request.dimensions, loaded.description)
    texts = require_texts(request, "`late_chunking` joins texts, and cannot join token ids. Send text.")
    found: list[JoinedChunks] = []
    windows: list[Window] = []

    def encode() -> Slices[list[TokenSequence]]:
        joined = yield from join_chunks(model, texts, loaded.limits.most_tokens)
        found.append(joined)
        windows.extend((yield from model.windows_in_slices(joined.text, joined.chunks, joined.is_inside)))
        return model.side.mark([window.sequence for window in windows])

    sizes = request.sizes
    if sizes:
        sizes[0] += len(model.prompt.text)
    done = await compute(loaded, Work(model.side, sizes, encode, None), caller)
    joined = found[0]
    numbers = len(texts) * (loaded.description.dim + CHUNK_NUMBERS)
    embeddings = await loaded.results.run_if_large(
        lambda: model.finish(average_texts(done, [windows], [len(texts)]), request), numbers
    )
    return EmbedResult(embeddings, joined.token_counts, done.timings)


@dataclass(frozen=True, slots=True)
class JoinedChunks:
    """Chunks of a client as one text: the range of the tokens of each, and which tokens are inside chunks."""

    text: WholeText
    chunks: tuple[TokenRange, ...]
    is_inside: npt.NDArray[np.bool_]

    @property
    def token_counts(self) -> tuple[int, ...]:
        """The number of tokens of each chunk. All other tokens count towards the first chunk."""
        counts = [int(self.is_inside[start:end].sum()) for start, end in self.chunks]
        counts[0] += len(self.text) + len(self.text.frame) - sum(counts)
        return tuple(counts)


def join_chunks(model: LateModel, texts: Sequence[str], most_tokens: int) -> Slices[JoinedChunks]:
    """Join the chunks `texts` into one text in slices.

    Raises `InputTooLong` if the text is longer than the model's longest input, since its chunks would have
    other embeddings than if it were read at once. Raises `InvalidRequest` for a chunk without tokens.
    """
    (text,) = yield from read_in_slices(
        model.side.tokenizer,
        [SEPARATOR.join(texts)],
        prompt=model.prompt.text,
        adapter=model.prompt.adapter,
        most_tokens=most_tokens,
    )
    count = len(text) + len(text.frame)
    if count > model.room:
        check_length(count, model.room, Truncation(is_allowed=False), "`input`, joined")
    starts = np.array([0, *accumulate(len(text) + len(SEPARATOR) for text in texts)])
    ends = starts[:-1] + [len(text) for text in texts]
    # A token that begins with the space before a chunk is the chunk's: its last character tells.
    owners = np.searchsorted(starts, text.lasts, side="right") - 1
    is_outside = (owners < 0) | (text.lasts >= ends[np.clip(owners, 0, len(texts) - 1)])
    owners[is_outside] = -1
    chunks = []
    for index in range(len(texts)):
        own = np.flatnonzero(owners == index)
        if not len(own):
            raise InvalidRequest(
                f"`input[{index}]` has no tokens of this model for `late_chunking` to use. Leave it out.",
                field=f"input[{index}]",
            )
        chunks.append((int(own[0]), int(own[-1]) + 1))
    return JoinedChunks(text, tuple(chunks), owners >= 0)


def require_texts(request: Embed, message: str) -> list[str]:
    """Return the inputs. Raises `InvalidRequest` with this message if some are token ids."""
    texts = [item for item in request.inputs if isinstance(item, str)]
    if len(texts) < len(request.inputs):
        raise InvalidRequest(message, field="input")
    return texts
