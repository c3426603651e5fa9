"""Pictures a second, in process: vecmill, a bare session with its graph, Infinity, sentence-transformers.

    make bench-pictures

The model has the shape of ViT-B/32 and random weights. The files are JPEG of 640 x 480 pixels. The bare
session of ONNX Runtime gets patches that are ready, and shows what the graph alone can do; all others decode,
resize and embed the files. Infinity has its engine torch. Each contestant has a process of its own, and they
take turns.
"""

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.environments import NotInstalled
from bench.picture_peer import infinity_process
from bench.program import make_parser, start
from bench.report import Figure, at_least, processor_name, ratios_of
from bench.rigs import remote_process
from support.drawn_pictures import draw_picture, write_picture
from support.two_towers import save_clip
from vecmill import EmbedPictures, Mill, MillConfig, Picture, SyncMill
from vecmill.architectures.towers import cut_patches
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.hardware.cores import available_cores
from vecmill.models import locate_model
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.pictures.reading import read_picture
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch
from vecmill.values.engine_plan import EnginePlan

SEED = 20_261_129
SHAPE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
    "hidden_act": "quick_gelu",
}
WIDTH, HEIGHT = 640, 480
REQUEST_PICTURES, CALLERS = 16, 8
# Of what a bare session with the same graph gives.
LEAST_SHARE = 0.85
# Of Infinity's pictures a second, by the maker of the processor.
LEAST_OF_INFINITY = {"AMD": 1.5, "Intel": 1.1}
# Between the first embeddings of vecmill and of Infinity, whose processor may resize otherwise.
LEAST_COSINE = 0.999
INFINITY = "infinity, torch"


class _Measured:
    """A contestant in a process of its own. `measure` returns pictures a second and peak memory in MiB."""

    def __init__(self, embed: Callable[[Sequence[bytes]], object]) -> None:
        self._embed = embed

    def measure(self, files: Sequence[bytes]) -> tuple[float, float]:
        began = time.perf_counter()
        self._embed(files)
        took_s = time.perf_counter() - began
        return len(files) / took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def load_vecmill(folder: Path, cache_dir: Path) -> _Measured:
    """The library, with requests of several callers."""
    loop = asyncio.new_event_loop()
    mill = Mill(folder, MillConfig(cache_dir=cache_dir))
    loop.run_until_complete(mill.start())

    async def embed(files: Sequence[bytes]) -> None:
        requests = [
            EmbedPictures(tuple(map(Picture, files[at : at + REQUEST_PICTURES])))
            for at in range(0, len(files), REQUEST_PICTURES)
        ]
        room = asyncio.Semaphore(CALLERS)

        async def call(request: EmbedPictures) -> None:
            async with room:
                await mill.run(request)

        await asyncio.gather(*map(call, requests))

    return _Measured(lambda files: loop.run_until_complete(embed(files)))


def load_bare_session(folder: Path, cache_dir: Path) -> _Measured:
    """The engine alone, in a thread for each core, with patches that are made before the clock starts."""
    tower = describe_model(locate_model(folder)).pictures
    assert tower is not None
    cores = available_cores()
    engine = load_engine(tower.encoder, EnginePlan(), cores=cores, cache_dir=cache_dir)
    encoder: Any = tower.encoder.encoder
    made: dict[int, list[Batch]] = {}

    def embed(files: Sequence[bytes]) -> None:
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(partial(engine.run, width=1), made[len(files)]))

    measured = _Measured(embed)
    run = measured.measure

    def measure(files: Sequence[bytes]) -> tuple[float, float]:
        if len(files) not in made:
            limits, geometry = PictureLimits(), tower.settings.geometry
            patches = [cut_patches(read_picture(data, geometry, limits), encoder) for data in files]
            size = max(1, 512 // encoder.max_input_tokens)
            made[len(files)] = [Batch.of(patches[at : at + size]) for at in range(0, len(patches), size)]
        return run(files)

    measured.measure = measure  # type: ignore[method-assign]
    return measured


def load_sentence_transformers(folder: Path, cache_dir: Path) -> _Measured:
    """The reference, on torch with a thread for each core."""
    import io

    from PIL import Image
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")

    def embed(files: Sequence[bytes]) -> None:
        model.encode([Image.open(io.BytesIO(data)) for data in files], batch_size=32)

    return _Measured(embed)


CONTESTANTS: dict[str, Callable[[Path, Path], _Measured]] = {
    "vecmill": load_vecmill,
    "bare session": load_bare_session,
    "sentence-transformers": load_sentence_transformers,
}


def measure_infinity(ask: Callable[[int], tuple[float, float, FloatArray]]) -> Callable[..., Any]:
    """Return a function with the arguments of the other contestants' processes."""

    def call(_method: str, files: Sequence[bytes]) -> tuple[float, float]:
        rate, peak, _ = ask(len(files))
        return rate, peak

    return call


def compare_first(model: Path, file: bytes, row: FloatArray, cache_dir: Path) -> Figure:
    """Return the cosine of Infinity's embedding of a picture and vecmill's."""
    with SyncMill(model, MillConfig(cache_dir=cache_dir)) as mill:
        ours = mill.run(EmbedPictures((Picture(file),))).embeddings[0]
    cosine = float(ours @ row / np.linalg.norm(ours) / np.linalg.norm(row))
    return at_least("cosine with Infinity", "", (cosine,), LEAST_COSINE)


def find_least_of_infinity() -> float | None:
    """Return what is promised on this processor."""
    name = processor_name()
    return next((least for maker, least in LEAST_OF_INFINITY.items() if maker in name), None)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--pictures", type=int, default=1000, help="Pictures in each round.")
    rates: dict[str, list[float]] = {}
    peaks: dict[str, float] = {}
    figures = []
    with start(parser, arguments, seed=SEED) as run:
        folder, cache_dir = (
            save_clip(run.folder / "model", seed=SEED, vision_config=SHAPE),
            run.folder / "cache",
        )
        files = [
            write_picture(draw_picture("RGB", HEIGHT, WIDTH, seed), "JPEG")
            for seed in range(run.options.pictures)
        ]
        ask = {
            name: run.stack.enter_context(remote_process(load, folder, cache_dir))
            for name, load in CONTESTANTS.items()
        }
        try:
            infinity = run.stack.enter_context(infinity_process(folder, files, run.folder / "files"))
        except NotInstalled as error:
            print(f"Infinity is left out: {error}", flush=True)
        else:
            figures.append(compare_first(folder, files[0], infinity(1)[2], cache_dir))
            ask[INFINITY] = measure_infinity(infinity)
        for name in ask:
            ask[name]("measure", files[:32])  # untimed
        for number in range(run.options.rounds):
            for name in ask:
                rate, peaks[name] = ask[name]("measure", files)
                rates.setdefault(name, []).append(rate)
                print(
                    f"round {number + 1}, {name}: {rate:.1f} pictures/s, peak {peaks[name]:.0f} MiB",
                    flush=True,
                )
        figures += [Figure(name, "pictures/s", tuple(found)) for name, found in rates.items()]
        figures += [Figure(f"peak memory, {name}", "MiB", (peak,)) for name, peak in peaks.items()]
        least = {"bare session": LEAST_SHARE, INFINITY: find_least_of_infinity()}
        for name, found in rates.items():
            if name != "vecmill":
                ratios = ratios_of(rates["vecmill"], found)
                figures.append(at_least(f"vecmill by {name}", "ratio", ratios, least.get(name)))
    return run.finish("pictures", "pictures a second", figures)


if __name__ == "__main__":
    sys.exit(main())
