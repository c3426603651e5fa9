"""Fuzzes the decoders with atheris, which looks for inputs that reach new code.

`python -m fuzz.guided --minutes 10 [NAME ...]` fuzzes each decoder in a process of its own. First it fuzzes a
planted defect, which must be found. Prints the input of each defect, and exits with 1 if there is any.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PLANTED = "planted"
PLANTED_S = 60
MAX_BYTES, TIMEOUT_S, MEMORY_MB = 4_096, 20, 4_096
INSTRUMENTED = ["vecmill", "vecmill_server", "python_multipart", "fuzz"]


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


def run_apart(name: str, seconds: int) -> tuple[bool, str]:
    """Fuzz one decoder in another process; return whether it is sound, and the end of the output."""
    command = [sys.executable, "-m", "fuzz.guided", "--one", name, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]  # atheris prints to both


def fuzz_all(names: Sequence[str], seconds: int) -> bool:
    """Fuzz decoders one after the other; return whether all are sound."""
    is_sound, output = run_apart(PLANTED, min(seconds, PLANTED_S))
    if is_sound or "IndexError: planted" not in output:
        print(f"the planted defect was not found:\n{output}")
        return False
    print(f"{PLANTED}: found, as it must be", flush=True)
    all_sound = True
    for name in names:
        is_sound, output = run_apart(name, seconds)
        executed = [line for line in output.splitlines() if "number_of_executed_units" in line]
        print(f"{name}: {'no defect' if is_sound else 'DEFECT'}, {' '.join(executed)}", flush=True)
        if not is_sound:
            print(output)
            all_sound = False
    return all_sound


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

    sys.exit(0 if fuzz_all(options.names or list(DECODERS), seconds) else 1)


if __name__ == "__main__":
    main()
