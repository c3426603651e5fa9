"""A library that computes embeddings in its own process, driven by lines of JSON.

It runs in the environment of its peer, which has no vecmill: python in_process.py LIBRARY MODEL. Each line of
the standard input is a request, and each line of the original standard output is the answer to it. Whatever
the library prints goes to the standard error.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]

BATCH = 32
PERCENTILES = (0.5, 0.99)


def read(model: str, file: str, entry: str) -> int:
    """Return a number of a settings file of the model."""
    return int(json.loads((Path(model) / file).read_text("utf-8"))[entry])


def load_sentence_transformers(model: str, backend: str, **model_kwargs: Any) -> Embed:
    """`SentenceTransformer.encode` as its users call it. It sorts the texts of a call by length."""
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(model, device="cpu", backend=backend, model_kwargs=model_kwargs)
    loaded.max_seq_length = read(model, "sentence_bert_config.json", "max_seq_length")
    return lambda texts: loaded.encode(list(texts), batch_size=BATCH, show_progress_bar=False).tolist()


def load_fastembed(model: str) -> Embed:
    """`TextEmbedding.embed` of fastembed, with the model directory as a custom model."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="local/model",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf=f"sentence-transformers/{Path(model).name}"),
        dim=read(model, "config.json", "hidden_size"),
        model_file="onnx/model.onnx",
    )
    loaded = TextEmbedding("local/model", specific_model_path=model)
    return lambda texts: [row.tolist() for row in loaded.embed(list(texts), batch_size=BATCH)]


def load_embed_anything(model: str) -> Embed:
    """`embed_query` of EmbedAnything, which reads models from a cache of the hub alone: HF_HOME."""
    import embed_anything

    loaded = embed_anything.EmbeddingModel.from_pretrained_hf(model_id=model)
    config = embed_anything.TextEmbedConfig(batch_size=BATCH)
    return lambda texts: [
        found.embedding for found in embed_anything.embed_query(list(texts), embedder=loaded, config=config)
    ]


LIBRARIES: dict[str, Callable[[str], Embed]] = {
    "sentence-transformers": lambda model: load_sentence_transformers(model, "torch"),
    "sentence-transformers-onnx": lambda model: load_sentence_transformers(
        model, "onnx", file_name="onnx/model.onnx", provider="CPUExecutionProvider"
    ),
    "sentence-transformers-openvino": lambda model: load_sentence_transformers(model, "openvino"),
    "fastembed": load_fastembed,
    "embed-anything": load_embed_anything,
}


# Below this number of calls the 99th percentile is the maximum.
CALLS_FOR_P99 = 100


def measure(
    embed: Embed, texts: Sequence[str], batch: int, seconds: float, least_calls: int = 1, most_s: float = 0.0
) -> dict[str, float | None]:
    """Call `embed` with `batch` texts at a time for `seconds`, and to the end of the call that runs then.

    With fewer calls than `least_calls` then, it goes on for at most `most_s`.
    """
    times_s: list[float] = []
    done = 0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or (len(times_s) < least_calls and spent < most_s):
        given = [texts[(done + place) % len(texts)] for place in range(batch)]
        called = time.perf_counter()
        embed(given)
        times_s.append(time.perf_counter() - called)
        done += batch
    ordered = sorted(times_s)
    p50, p99 = (ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in PERCENTILES)
    return {
        "texts_per_s": done / (time.perf_counter() - began),
        "p50_ms": p50 * 1e3,
        "p99_ms": p99 * 1e3 if len(times_s) >= CALLS_FOR_P99 else None,
        "calls": len(times_s),
    }


def main() -> None:
    """Load the library of the first argument with the model of the second one, then answer requests."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    embed = LIBRARIES[sys.argv[1]](sys.argv[2])
    embed(["ready"])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "embed" in request:
            found: Any = embed(request["embed"])
        else:
            texts, batch = request["texts"], request["batch"]
            measure(embed, texts, batch, request["warm_s"])
            limits = request["seconds"], request["least_calls"], request["most_s"]
            found = measure(embed, texts, batch, *limits)
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
