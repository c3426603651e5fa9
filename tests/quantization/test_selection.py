"""The selection of layers: as few as possible stay as they are, and the worst text decides."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from vecmill.quantization.selection import output_losses, select_layers
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding

TEXTS = 20
# The losses of the model without quantisation, and of layers.
BASE, SMALL, LARGE = 2e-5, 1e-6, 5e-4
NAMES = tuple("abcdefghij")


def floats(values: npt.ArrayLike) -> FloatArray:
    return np.array(values, np.float32)


class Model:
    """A model whose losses are the sums of its layers' losses. `asked` are the measured sets of layers."""

    def __init__(self, losses: dict[str, FloatArray], combine: Callable[[FloatArray], FloatArray]) -> None:
        self._losses = losses
        self._combine = combine
        self.asked: list[tuple[str, ...]] = []

    def measure(self, names: Sequence[str], texts: Sequence[int]) -> FloatArray:
        self.asked.append(tuple(names))
        total = np.sum([np.full(TEXTS, BASE), *(self._losses[name] for name in names)], axis=0)
        return self._combine(total)[list(texts)]


def identity(total: FloatArray) -> FloatArray:
    return total


def make_model(worst: dict[str, float], combine: Callable[[FloatArray], FloatArray] = identity) -> Model:
    """Make a model whose layers in `worst` have the given loss on text 3, and all other losses are small."""
    losses = {name: np.full(TEXTS, SMALL) for name in NAMES}
    for name, loss in worst.items():
        losses[name][3] = loss
    return Model(losses, combine)


def select(model: Model, **sizes: int) -> set[str]:
    return set(select_layers({name: sizes.get(name, 10) for name in NAMES}, TEXTS, model.measure))


def test_an_accurate_model_is_quantised_as_a_whole() -> None:
    model = make_model({"a": LARGE})
    assert select(model) == set(NAMES)
    assert len(model.asked) == 1


def test_the_layer_that_loses_most_stays() -> None:
    model = make_model({"c": LARGE, "f": LARGE / 2, "h": LARGE / 3})
    assert set(NAMES) - select(model) == {"c"}
    assert model.asked == [NAMES, (), *((name,) for name in NAMES), tuple(sorted(set(NAMES) - {"c"}))]


def test_of_two_equal_layers_the_smaller_stays() -> None:
    assert set(NAMES) - select(make_model({"c": LARGE, "f": LARGE}), c=20) == {"f"}


def test_at_most_a_quarter_stays() -> None:
    left_out = set(NAMES) - select(make_model(dict.fromkeys(NAMES, 2e-4)))
    assert len(left_out) == 2


def test_the_measurement_decides_and_not_the_prediction() -> None:
    # The loss of text 3 falls much less than the losses of single layers promise.
    model = make_model({"c": LARGE, "f": LARGE}, lambda total: np.where(total > 4e-4, 1e-3, total))
    kept = select(model)
    assert set(NAMES) - kept == {"c", "f"}


def test_the_layers_of_a_deep_model_stay_in_groups_so_that_the_search_has_an_end() -> None:
    names = [f"layer {number}" for number in range(100)]
    losses = {name: np.full(TEXTS, SMALL) for name in names}
    losses["layer 17"][3] = 2 * LARGE
    model = Model(losses, identity)
    left_out = set(names) - set(select_layers(dict.fromkeys(names, 10), TEXTS, model.measure))
    assert left_out == {f"layer {number}" for number in range(16, 20)}
    assert len(model.asked) < 30


@pytest.mark.parametrize("loss", [0.1, np.nan])
def test_a_model_that_cannot_be_helped_is_not_searched(loss: float) -> None:
    model = make_model({"c": loss})
    assert select(model) == set(NAMES)
    assert len(model.asked) == 1


def test_the_loss_of_a_text_is_that_of_its_worst_embedding() -> None:
    expected = [floats([[1.0, 0.0], [0.0, 2.0]]), floats([[0.0, 0.0]])]
    found = [floats([[3.0, 0.0], [0.6, 0.8]]), floats([[0.0, 0.0]])]
    np.testing.assert_allclose(output_losses(found, expected, scored=False), [0.2, 0], atol=1e-6)


def test_sparse_embeddings_are_compared_by_column() -> None:
    def sparse(columns: list[int], values: list[float]) -> SparseEmbedding:
        return SparseEmbedding(np.array(columns), floats(values))

    found, expected = sparse([2, 9], [0.6, 0.8]), sparse([9, 11], [1.0, 0.0])
    np.testing.assert_allclose(output_losses([found], [expected], scored=False), [0.2], atol=1e-6)


def test_scores_are_compared_with_the_largest_score() -> None:
    expected = [floats([[-4.0]]), floats([[0.01]])]
    found = [floats([[-4.4]]), floats([[-0.03]])]
    np.testing.assert_allclose(
        output_losses(found, expected, scored=True), [0.1**2 / 2, 0.01**2 / 2], rtol=1e-4
    )
