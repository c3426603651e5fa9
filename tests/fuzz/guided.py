"""Fuzzes the decoders with atheris, which looks for inputs that reach new code.

`python -m fuzz.guided --minutes 10 [NAME ...]` fuzzes each decoder in a process of its own. First it fuzzes a
planted defect, which must be found. Prints the input of each defect, and exits with 1 if there is any, or if
a decoder was not run.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PLANTED = "planted"
PLANTED_S = 60
MAX_BYTES, TIMEOUT_S, MEMORY_MB = 4_096, 20, 4_096
INSTRUMENTED = ["vecmill", "vecmill_server", "python_multipart", "fuzz"]
# A fuzzer that has not ended so long after its time hangs where its own alarm does not reach.
START_AND_END_S = 300


def fuzz_one(name: str, seconds: int) -> None:
    """Fuzz one decoder in this process, which ends here: with 0 if no defect was found."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        from fuzz.decoders import DECODERS, Decoder
        from fuzz.planted import read_planted

    decoder = Decoder(read_planted, (b"magic?",)) if name == PLANTED else DECODERS[name]()
    with tempfile.TemporaryDirectory() as folder:
        for number, example in enumerate(decoder.examples):
            (Path(folder) / str(number)).write_bytes(example)
        limits = [f"-max_len={MAX_BYTES}", f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}"]
        output = [f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={folder}/"]
        atheris.Setup([sys.argv[0], folder, *limits, *output], decoder.check)
        atheris.Fuzz()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a fuzzer: whether it found no defect, the number of inputs, and the end of the output."""

    has_passed: bool
    inputs: int
    output: str

    @property
    def is_sound(self) -> bool:
        """Whether the decoder was run, without a defect."""
        return self.has_passed and self.inputs > 0


def run_apart(name: str, seconds: int) -> Run:
    """Fuzz one decoder in another process."""
    command = [sys.executable, "-m", "fuzz.guided", "--one", name, "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # atheris prints to both
            text=True,
            errors="replace",
            check=False,
            timeout=seconds + START_AND_END_S,
        )
    except subprocess.TimeoutExpired as error:
        return Run(False, 0, f"{error}\n{_text(error.output)[-4_000:]}")
    return Run(done.returncode == 0, count_inputs(done.stdout), done.stdout[-4_000:])


def count_inputs(output: str) -> int:
    """Return the number of inputs that a fuzzer says it ran; 0 if it says nothing."""
    found = re.findall(r"stat::number_of_executed_units:\s+(\d+)", output)
    return int(found[-1]) if found else 0


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def fuzz_all(names: Sequence[str], seconds: int) -> bool:
    """Fuzz decoders one after the other; return whether all are sound."""
    planted = run_apart(PLANTED, min(seconds, PLANTED_S))
    if planted.has_passed or "IndexError: planted" not in planted.output:
        print(f"the planted defect was not found:\n{planted.output}")
        return False
    print(f"{PLANTED}: found, as it must be", flush=True)
    defects = []
    for name in names:
        print(f"{name}: {seconds} s ...", flush=True)
        run = run_apart(name, seconds)
        print(f"{name}: {'no defect' if run.is_sound else 'DEFECT'}, {run.inputs:,} inputs", flush=True)
        if not run.is_sound:
            print(run.output, flush=True)
            defects.append(name)
    print(f"{len(names)} decoders, defects in {', '.join(defects) or 'none'}")
    return not defects


def main() -> None:
    """Read the arguments, and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--one")
    options = parser.parse_args()
    seconds = options.seconds or int(60 * options.minutes)
    if options.one:
        fuzz_one(options.one, seconds)
        return
    from fuzz.decoders import DECODERS

    if unknown := set(options.names) - DECODERS.keys():
        parser.error(f"there is no decoder {', '.join(sorted(unknown))}")
    sys.exit(0 if fuzz_all(options.names or list(DECODERS), seconds) else 1)


if __name__ == "__main__":
    main()
