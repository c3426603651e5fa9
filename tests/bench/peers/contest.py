"""vecmill and its peers on the same weights and texts, in turn and repeated.

    make bench-peers

Each peer has an environment of its own, which `make` installs. In each round every peer is started, measured
under every load and stopped, in an order that is drawn for the round. The first start of a peer also compares
its embeddings with those of sentence-transformers. A peer that cannot be installed or started is a row with
the reason. The results are saved after each peer, and `--continue` goes on from them.
"""

import argparse
import os
import platform
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from bench.contestants import LoadOracle
from bench.peers.environments import NotInstalled, install_environment, read_versions
from bench.peers.loads import SEED, TextFiles, checked_texts, list_loads
from bench.peers.models import LONG, MODEL, prepare_models
from bench.peers.page import RESULTS, write_files
from bench.peers.processes import PeerFailed, Place, embed_in_batches, prepare_peer, run_peer
from bench.peers.results import Comparison, LoadFigures, PeerResult, PeerRound
from bench.peers.roster import BASE, OPTIMIZED, Peer, list_peers
from bench.report import processor_name, warn_if_busy
from bench.rigs import remote_process
from support.source_tree import ROOT
from vecmill.hardware.cores import available_cores
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray
from vecmill.verification.comparison import compare_embeddings

# What a peer, its installation and its responses may raise.
FAILURES = (
    *(PeerFailed, NotInstalled, OSError, ValueError, LookupError),
    *(HTTPException, subprocess.SubprocessError),
)


class Contest:
    """The peers that can run, their results so far, and the reference of the checked texts."""

    def __init__(
        self, peers: Sequence[Peer], place: Place, checked: Sequence[str], reference: FloatArray
    ) -> None:
        self._place = place
        self._loads = list_loads(place.models.max_tokens)
        self._checked = checked
        self._reference = reference
        self._peers = {peer.name: peer for peer in peers}
        self.results = {
            peer.name: PeerResult(peer.name, str(peer.transport), command=" ".join(peer.command))
            for peer in peers
        }
        self._not_chosen: list[PeerResult] = []

    @property
    def all_results(self) -> list[PeerResult]:
        """The results of the chosen peers, then the earlier ones of others, which are kept as they are."""
        return [*self.results.values(), *self._not_chosen]

    def take_up(self, earlier: Comparison) -> None:
        """Go on from earlier results. A peer that failed is tried again in the rounds that are left."""
        for found in earlier.peers:
            if found.name in self.results:
                found.reason, found.command = None, self.results[found.name].command
                self.results[found.name] = found
            else:
                self._not_chosen.append(found)

    def prepare(self) -> None:
        """Install each peer, and read its versions. Forget the figures of other versions."""
        for name, peer in self._peers.items():
            result = self.results[name]
            try:
                if peer.environment is not None:
                    print(f"installing {peer.environment} ...", flush=True)
                    install_environment(peer.environment)
                versions = read_versions(peer)
                if result.rounds and versions != result.versions:
                    result.rounds, result.cosine_min = [PeerRound()] * len(result.rounds), None
                result.versions = versions
                prepare_peer(peer, self._place)
            except FAILURES as error:
                self._refuse(result, error)

    def run_round(self, names: Sequence[str]) -> None:
        """Measure the peers in this order. A peer that fails keeps the loads before its failure."""
        for name in names:
            result = self.results[name]
            result.rounds.append(self._measure(self._peers[name], result))

    def _measure(self, peer: Peer, result: PeerResult) -> PeerRound:
        if result.reason is not None:
            return PeerRound()
        loads: dict[str, LoadFigures] = {}
        ready_s = None
        try:
            with run_peer(peer, self._place) as running:
                if result.cosine_min is None:
                    found = compare_embeddings(embed_in_batches(running, self._checked), self._reference)
                    result.cosine_min, result.cosine_mean = found.cosine_min, found.cosine_mean
                ready_s = running.ready_s
                for load in self._loads:
                    loads[load.name] = running.measure(load)
                    figure = loads[load.name].figure(load)
                    shown = loads[load.name].reason if figure is None else f"{figure:.1f} {load.unit}"
                    print(f"{peer.name}, {load.name}: {shown}", flush=True)
                return PeerRound(ready_s, running.memory_mb(), loads)
        except FAILURES as error:
            self._refuse(result, error)
            return PeerRound(ready_s, None, loads)

    def _refuse(self, result: PeerResult, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        for path in (self._place.models.folder, self._place.folder, ROOT):
            reason = reason.replace(f"{path}/", "")
        result.reason = reason
        print(f"{result.name}: {reason}", flush=True)


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on, beside the software of the peers."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "memory_gb": round(memory_bytes / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def compute_reference(model: Path, texts: Sequence[str], folder: Path) -> FloatArray:
    """Return the embeddings by sentence-transformers in fp32, in a process that ends before the rounds."""
    load = LoadOracle(locate_model(model), available_cores())
    with remote_process(load, folder) as ask:
        return np.asarray(ask("rows", list(texts)), np.float32)


def choose_peers(options: argparse.Namespace) -> list[Peer]:
    """Return the chosen peers, the one that the ratios divide by, and the directory of `--optimized`.

    Exits for a name that there is not.
    """
    try:
        peers = list_peers(options.url, has_optimized=options.optimized is not None)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    names = {peer.name for peer in peers}
    unknown = [name for name in options.peer if name not in names]
    if unknown:
        raise SystemExit(f"there is no peer {', '.join(unknown)}; choose from: {'; '.join(sorted(names))}")
    return [peer for peer in peers if not options.peer or peer.name in (BASE, OPTIMIZED, *options.peer)]


def run_rounds(contest: Contest, options: argparse.Namespace, save: Callable[[], None]) -> None:
    """Run the rounds that are left, each in an order drawn from the seed, and save after each peer."""
    chance = random.Random(options.seed)
    for number in range(options.rounds):
        names = list(contest.results)
        chance.shuffle(names)
        names = [name for name in names if len(contest.results[name].rounds) <= number]
        print(f"round {number + 1} of {options.rounds}: {'; '.join(names)}", flush=True)
        for name in names:
            contest.run_round([name])
            save()


def read_earlier(machine: Mapping[str, Any], options: argparse.Namespace) -> Comparison:
    """Return the saved results. Exits if there are none, or if they are of another machine or run."""
    if not RESULTS.is_file():
        raise SystemExit(f"there is nothing to continue: {RESULTS.relative_to(ROOT)} does not exist")
    earlier = Comparison.read(RESULTS)
    for name in ("processor", "cores", "memory_gb", "system", "python"):
        if earlier.machine[name] != machine[name]:
            raise SystemExit(
                f"{name} was {earlier.machine[name]} in the saved run, and is {machine[name]} now"
            )
    if earlier.model != name_model(options.model):
        raise SystemExit(f"continue with the model {earlier.model}, as the saved run")
    for name in ("seconds", "seed"):
        if earlier.settings[name] != getattr(options, name):
            raise SystemExit(f"continue with --{name} {earlier.settings[name]}, as the saved run")
    return earlier


def name_model(model: Path | None) -> str:
    """Return the name of the model of `--model`."""
    return MODEL if model is None else model.resolve().name


def name_command(options: argparse.Namespace) -> str:
    """Return the command that repeats the run."""
    arguments = ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    for name in options.peer:
        arguments += ["--peer", name]
    for url in options.url:
        arguments += ["--url", url]
    if options.model is not None:
        arguments += ["--model", name_model(options.model)]
    if options.optimized is not None:
        arguments += ["--optimized", options.optimized.name]
    return f'make bench-peers ROUNDS={options.rounds} ARGS="{shlex.join(arguments)}"'


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8, help="How long each load is measured.")
    parser.add_argument("--seed", type=int, default=SEED, help="The seed of the order in each round.")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME", help="Leave out the others.")
    parser.add_argument("--url", action="append", default=[], metavar="NAME=URL", help="A running server.")
    parser.add_argument(
        "--model",
        type=Path,
        help=f"A directory of sentence-transformers, or {LONG}: the embedded model for long texts.",
    )
    parser.add_argument("--optimized", type=Path, help="A directory that vecmill optimize wrote.")
    parser.add_argument(
        "--continue", dest="goes_on", action="store_true", help="Go on from the saved rounds."
    )
    parser.add_argument("--list", action="store_true", help="Print the names of the peers.")
    options = parser.parse_args(arguments)
    peers = choose_peers(options)
    if options.list:
        print("\n".join(peer.name for peer in peers))
        return 0
    # So that the servers are stopped too, which are in sessions of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    warn_if_busy()
    machine = describe_machine()
    earlier = read_earlier(machine, options) if options.goes_on else None
    if earlier is not None:
        machine = dict(earlier.machine)  # the load now may be that of the interrupted run
    print(f"seed {options.seed}, {options.rounds} rounds of {options.seconds} s for each load", flush=True)
    with tempfile.TemporaryDirectory(prefix="vecmill-peers-") as name:
        folder = Path(name)
        models = prepare_models(folder / "models", options.model)
        settings = {
            "rounds": options.rounds,
            "seconds": options.seconds,
            "seed": options.seed,
            "command": name_command(options) if earlier is None else earlier.settings["command"],
            "model": models.name,
            "tokens": models.max_tokens,
        }
        place = Place(models, TextFiles(folder, models), folder, options.seconds, options.optimized)
        checked = checked_texts(place.texts, list_loads(models.max_tokens))
        reference = compute_reference(models.source, checked, folder / "cache")
        contest = Contest(peers, place, checked, reference)

        def save() -> None:
            finished_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            write_files(Comparison(finished_at, machine, settings, contest.all_results))

        if earlier is not None:
            contest.take_up(earlier)
        contest.prepare()
        run_rounds(contest, options, save)
    print(RESULTS.with_suffix(".md").read_text("utf-8"))
    print(f"written to {RESULTS.relative_to(ROOT)}, with a page and a plot beside it")
    return 0 if contest.results[BASE].is_measured else 1


if __name__ == "__main__":
    sys.exit(main())
