"""A program with the library, whose types a strict checker accepts as they are written."""

from vecmill import (
    Chunking,
    Embed,
    InputConfig,
    Mill,
    MillConfig,
    OverloadError,
    QueueConfig,
    QueueFull,
    VecmillError,
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
