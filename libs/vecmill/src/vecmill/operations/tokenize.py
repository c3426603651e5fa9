"""Texts to tokens and back, without an engine."""

from collections.abc import Sequence

from vecmill.intake import Intake
from vecmill.types import TokenizeResult


async def tokenize(intake: Intake, texts: Sequence[str], *, special: bool, field: str) -> TokenizeResult:
    """The tokens of each text. Raises as `Mill.tokenize` does."""
    sizes = [len(text) for text in texts]
    intake.check_sizes(sizes, field)
    tokens = await intake.read(
        lambda: intake.tokenizer.split(texts, special=special, field=field), sum(sizes)
    )
    return TokenizeResult(tokens)


async def detokenize(
    intake: Intake, ids: Sequence[Sequence[int]], *, skip_special: bool, field: str
) -> tuple[str, ...]:
    """The text of each list of token ids. Raises as `Mill.detokenize` does."""
    sizes = [len(one) for one in ids]
    intake.check_sizes(sizes, field)
    names = [field] if len(ids) == 1 else [f"{field}[{index}]" for index in range(len(ids))]
    join = intake.tokenizer.join
    return await intake.read(
        lambda: tuple(
            join(one, skip_special=skip_special, field=name) for one, name in zip(ids, names, strict=True)
        ),
        sum(sizes),
    )
