"""A server does not start on rows that cannot be right."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.reference import load_reference
from vecmill import Mill
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.errors import SelfCheckFailed
from vecmill.hardware.budget import CoreBudget
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill.verification.self_check import TEXTS, Samples, check_engine, load_stored_embeddings


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    return describe_model(locate_model())


class SpoiltEngine(FakeEngine):
    """Passes itself off as an fp32 engine, and changes the rows that it gives."""

    def __init__(self, spoil: Any) -> None:
        super().__init__(dim=384)
        self.info = replace(self.info, precision="fp32")
        self._spoil = spoil

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        rows = super().run(batch, width=width)
        return replace(rows, values=self._spoil(batch, rows.values))


SPOILS = {
    "not finite": lambda batch, rows: np.where(np.arange(384) == 7, np.nan, rows),
    "unit length": lambda batch, rows: rows * np.float32(1.01),
    "alone and in a batch": lambda batch, rows: rows if len(batch) == 1 else rows[::-1].copy(),
}


class SpoiltWideEngine(FakeEngine):
    """Gives other rows on two cores than on one."""

    def __init__(self) -> None:
        super().__init__(dim=384, lane_widths=(1, 2))
        self.info = replace(self.info, precision="fp32")

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        rows = super().run(batch, width=width)
        return rows if width == 1 else replace(rows, values=-rows.values)


@pytest.mark.parametrize("complaint", SPOILS)
def test_what_cannot_be_right_is_refused(description: ModelDescription, complaint: str) -> None:
    engine = SpoiltEngine(SPOILS[complaint])
    with pytest.raises(SelfCheckFailed, match=complaint):
        check_engine(
            description, engine, Samples.of_texts(Tokenizer.load(description), description), CoreBudget(2)
        )


def test_rows_that_depend_on_the_number_of_cores_are_refused(description: ModelDescription) -> None:
    with pytest.raises(SelfCheckFailed, match="on 1 and on 2 cores"):
        check_engine(
            description,
            SpoiltWideEngine(),
            Samples.of_texts(Tokenizer.load(description), description),
            CoreBudget(2),
        )


def test_the_embedded_model_must_give_its_stored_rows(description: ModelDescription) -> None:
    engine = SpoiltEngine(lambda batch, rows: rows)  # finite, normalised, consistent, and not the model's
    with pytest.raises(SelfCheckFailed, match="on this machine and in the reference"):
        check_engine(
            description, engine, Samples.of_texts(Tokenizer.load(description), description), CoreBudget(2)
        )


def test_the_stored_rows_are_those_of_the_reference(description: ModelDescription) -> None:
    rows = load_reference(description.directory).encode(list(TEXTS), normalize_embeddings=True)
    np.testing.assert_allclose(load_stored_embeddings(), rows, atol=1e-6)


@pytest.mark.promise("verified-start")
async def test_a_mill_that_fails_its_check_does_not_start(description: ModelDescription) -> None:
    engine = SpoiltEngine(SPOILS["not finite"])
    with pytest.raises(SelfCheckFailed):
        async with Mill(description, engine=engine):
            pass
    assert engine.closed
