"""A program with the library, whose types a strict checker accepts as they are written."""

from vecmill import (
    Chunk,
    Chunking,
    ClassifyResult,
    Embed,
    EmbedResult,
    InputConfig,
    InputLimitExceeded,
    InputTooLong,
    Mill,
    MillConfig,
    OutputDtype,
    OverloadError,
    Precision,
    Priority,
    Purpose,
    QueueConfig,
    QueueFull,
    RequestTooLarge,
    RerankResult,
    SyncMill,
    TextOptions,
    Tokenize,
    Truncation,
    VecmillError,
    quantize,
)

CONFIG = MillConfig(
    precision="int8",
    queue=QueueConfig(timeout_s=None),
    inputs=InputConfig(on_long_input="error"),
)


async def main() -> float:
    async with Mill(config=CONFIG) as mill:
        try:
            rows = await mill.embed(["A text."], purpose="query", timeout_s=5)
            result = await mill.run(Embed(("A text.",), chunking=Chunking("chunks")), wait_for_room=False)
        except QueueFull as error:
            return error.retry_after_s
        except OverloadError as error:
            raise SystemExit(error.message) from error
        except VecmillError:
            raise
        return float(rows.sum() + result.embeddings.sum())


async def ask_everything(mill: Mill) -> list[object]:
    ranked: RerankResult = await mill.rerank(
        "A question?", ["A text."], priority=Priority.BULK, client="search"
    )
    labels: ClassifyResult = await mill.classify(
        ["A text.", ("One", "two")], priority="bulk", client="search"
    )
    options = TextOptions(purpose=Purpose.QUERY, truncation=Truncation(max_tokens=8))
    request = Embed(("A text.",), dtypes=(OutputDtype.INT8,), options=options, priority=Priority.BACKGROUND)
    result: EmbedResult = await mill.run(request)
    chunks: tuple[Chunk, ...] = result.chunks or ()
    tokens = await mill.run(Tokenize(("A text.",)))
    small = quantize(result.embeddings, "int8", result.ranges)
    prompts: dict[str, str] = dict(mill.prompts)
    piece: str = tokens.tokens[0][0].piece
    return [ranked.scores, labels.ranked(0), chunks, small.dtype, prompts, piece, result.timings.room_s + 1.0]


def use_in_a_notebook() -> tuple[int, ...]:
    with SyncMill("owner/name", MillConfig(precision=Precision.INT8, cores=2)) as mill:
        try:
            return mill.embed("A text.", priority="background", client="import", dimensions=8).shape
        except InputLimitExceeded as error:
            raise SystemExit(error.field) from error
        except RequestTooLarge:
            return (len(mill.prompts),)
        except InputTooLong as error:
            return error.token_count, error.max_tokens
