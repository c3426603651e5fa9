"""Every activation that a config may name is that of transformers."""

import numpy as np
import pytest

from support.graph_session import GraphSession
from vecmill.graphs.batch_layout import RaggedLayout
from vecmill.graphs.ops import Ops, activate
from vecmill.models.config_fields import ACTIVATIONS
from vecmill.values.batch import Batch, TokenSequence

VALUES = np.linspace(-12, 12, 97, dtype=np.float32).reshape(-1, 1)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activation_is_that_of_transformers(name: str) -> None:
    import torch
    from transformers.activations import ACT2FN

    op = Ops()
    layout = RaggedLayout(op)
    x = op.Gather(op.constant(VALUES, np.float32), layout.token_ids)
    graph = op.model(activate(op, x, name), "rows", ["tokens", 1])
    found = GraphSession(graph).run(Batch.of([TokenSequence.of(range(len(VALUES)))])).values
    expected = ACT2FN[name](torch.from_numpy(VALUES)).numpy()
    assert np.abs(found - expected).max() < 2e-6
