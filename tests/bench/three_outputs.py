"""All three outputs of bge-m3's shape in one pass, against the dense one alone and the reference.

make bench-three-outputs
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.program import make_parser, start, take_turns
from bench.report import Figure, ratios_of
from bench.size_models import SHAPES, save_model
from support.pytorch_files import save_with_torch
from support.texts import mixed_texts
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Output
from vecmill.values.engine_plan import EnginePlan

SEED = 20_261_124
TEXTS = 12
ALL = (Output.USUAL, Output.TOKEN_WEIGHTS, Output.TOKEN_VECTORS)


def save_heads(folder: Path, width: int) -> dict[str, Any]:
    """Write linear layers as FlagEmbedding does; return them by name."""
    torch.manual_seed(SEED)
    heads = {name: torch.nn.Linear(width, size) for name, size in (("sparse", 1), ("colbert", width))}
    for name, layer in heads.items():
        save_with_torch(folder / f"{name}_linear.pt", dict(layer.state_dict()))
    return heads


def largest_difference(
    found: Engine, sequences: Sequence[TokenSequence], model: Any, heads: dict[str, Any]
) -> float:
    """Compare all outputs of texts alone with transformers and the formulas of FlagEmbedding."""
    differences = []
    for sequence in sequences:
        embeddings = found.run(Batch.of([sequence]), width=found.info.lane_widths[-1])
        with torch.inference_mode():
            ids = torch.from_numpy(np.asarray(sequence.token_ids, np.int64))[None]
            hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
            dense = torch.nn.functional.normalize(hidden[:1], dim=-1)
            vectors = torch.nn.functional.normalize(heads["colbert"](hidden[1:]), dim=-1)
            weights = torch.relu(heads["sparse"](hidden))[1:, 0].numpy()
        largest: dict[int, float] = {}
        for token, weight in zip(sequence.token_ids.tolist()[1:], weights.tolist(), strict=True):
            largest[token] = max(weight, largest.get(token, 0.0))
        sparse = embeddings.others[Output.TOKEN_WEIGHTS]
        assert sparse.columns is not None
        given = dict(zip(sparse.columns.tolist(), sparse.values.tolist(), strict=True))
        differences += [abs(weight - given.get(token, 0.0)) for token, weight in largest.items()]
        differences.append(float(np.abs(embeddings.values - dense.numpy()).max()))
        others = embeddings.others[Output.TOKEN_VECTORS].values
        differences.append(float(np.abs(others - vectors.numpy()).max()))
    return float(max(differences))


def time_pairs(engine: Engine, sequences: Sequence[TokenSequence], rounds: int) -> tuple[float, ...]:
    """The time of all outputs over that of the dense one, for each of `rounds` pairs in turn."""
    batches = {
        outputs: Batch.of([replace(sequence, outputs=outputs) for sequence in sequences])
        for outputs in ((Output.USUAL,), ALL)
    }
    times_s: dict[tuple[Output, ...], list[float]] = {outputs: [] for outputs in batches}
    for counts, outputs in take_turns(batches, rounds):  # the first pair reads the weights
        began_s = time.perf_counter()
        engine.run(batches[outputs], width=1)
        if counts:
            times_s[outputs].append(time.perf_counter() - began_s)
    return ratios_of(times_s[ALL], times_s[Output.USUAL,])


def main(arguments: Sequence[str] | None = None) -> int:
    with start(make_parser(__doc__, rounds=5), arguments, seed=SEED) as run:
        folder = run.folder / "model"
        shape = SHAPES["bge-m3"]
        model = save_model(shape, folder)
        heads = save_heads(folder, shape.config["hidden_size"])
        description = describe_model(locate_model(folder))
        sequences = [
            replace(sequence, outputs=ALL)
            for sequence in Tokenizer.load(description).encode(mixed_texts(SEED, TEXTS))
            if 4 < len(sequence) <= 128
        ]
        engine = load_engine(description, EnginePlan(), cores=2, cache_dir=run.folder / "cache")
        difference = largest_difference(engine, sequences[:3], model, heads)
        ratios = time_pairs(engine, sequences, run.options.rounds)
    figures = [
        Figure("largest difference to the reference", "", (difference,), 1e-4),
        Figure("three outputs / dense alone, time", "", ratios, 1.05),
    ]
    return run.finish("three_outputs", f"{len(sequences)} texts", figures)


if __name__ == "__main__":
    sys.exit(main())
