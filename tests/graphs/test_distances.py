"""Buckets of distances are those of transformers, to the last bit that a border hangs on."""

import numpy as np
import pytest

from vecmill.graphs.distances import disentangled_buckets, distance_buckets

FARTHEST = (20, 40, 64, 128, 256, 512, 514, 1024)
# Others are refused when the config is read.
DISENTANGLED = [(count, far) for count in (2, 8, 32, 256, 512) for far in FARTHEST if count // 2 < far - 1]


@pytest.mark.parametrize("farthest", FARTHEST)
@pytest.mark.parametrize("count", [8, 16, 32, 64])
def test_buckets_are_those_of_the_reference(count: int, farthest: int) -> None:
    import torch
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    # Twice as far as the table goes: beyond, all are alike.
    distances = np.arange(-2 * farthest, 2 * farthest + 1)
    expected = MPNetEncoder.relative_position_bucket(
        torch.from_numpy(distances), num_buckets=count, max_distance=farthest
    )
    found = distance_buckets(count, farthest)[np.clip(distances, -farthest, farthest) + farthest]
    assert np.array_equal(found, expected.numpy())


@pytest.mark.parametrize(("count", "farthest"), DISENTANGLED)
def test_disentangled_buckets_are_those_of_the_reference(count: int, farthest: int) -> None:
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distances = np.arange(-2 * farthest, 2 * farthest + 1)
    expected = make_log_bucket_position(torch.from_numpy(-distances), count, farthest).long().numpy()
    found = disentangled_buckets(count, farthest)[np.clip(distances, -farthest, farthest) + farthest]
    assert np.array_equal(np.clip(found, -count, count - 1), np.clip(expected, -count, count - 1))


def test_without_buckets_a_distance_is_itself() -> None:
    assert disentangled_buckets(0, 3).tolist() == [3, 2, 1, 0, -1, -2, -3]
