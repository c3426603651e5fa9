"""Infinity's engine for pictures in its own process: `infinity_pictures.py MODEL FOLDER`.

It runs in the environment of its peer, which has no vecmill. FOLDER has the files 0.jpg, 1.jpg, and so on.
Each line of the standard input is a number of pictures, and each line of the original standard output is what
came of embedding them: the seconds, the peak memory in MiB and the first embedding.
"""

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

# Of one call; Infinity makes batches of its own.
CALL_PICTURES, CALLERS = 16, 8


async def embed(engine: Any, files: list[bytes]) -> list[Any]:
    """Return the embeddings of the files, with calls of several callers."""
    room = asyncio.Semaphore(CALLERS)

    async def call(part: list[bytes]) -> list[Any]:
        async with room:
            rows, _ = await engine.image_embed(images=part)
            return list(rows)

    parts = [files[at : at + CALL_PICTURES] for at in range(0, len(files), CALL_PICTURES)]
    return [row for rows in await asyncio.gather(*map(call, parts)) for row in rows]


async def serve(model: str, folder: Path, answers: Any) -> None:
    from infinity_emb import AsyncEmbeddingEngine, EngineArgs

    settings = EngineArgs(
        model_name_or_path=model, engine="torch", device="cpu", dtype="float32", model_warmup=False
    )
    engine = AsyncEmbeddingEngine.from_args(settings)
    async with engine:  # which gives no engine
        loop = asyncio.get_running_loop()
        print("ready", file=answers, flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            files = [(folder / f"{index}.jpg").read_bytes() for index in range(int(line))]
            began = time.perf_counter()
            rows = await embed(engine, files)
            took_s = time.perf_counter() - began
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found = {"seconds": took_s, "peak_mib": peak_mib, "row": [float(each) for each in rows[0]]}
            print(json.dumps(found), file=answers, flush=True)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print is no answer
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), answers))


if __name__ == "__main__":
    main()
