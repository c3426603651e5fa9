"""Runs a command that may start arm64 programs, as root on a Debian with an x86-64 processor.

    python -m arm64.programs COMMAND [ARGUMENTS]

Like everything that is emulated here, the command runs on one processor.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from arm64.emulator import PLAIN_PROCESSOR, CannotEmulate, Machine, arm64_programs
from arm64.run import prepare_qemu


def main(command: Sequence[str]) -> int:
    """Return the exit status of a command."""
    try:
        Machine.look().require()
    except CannotEmulate as error:
        sys.exit(str(error))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with arm64_programs(prepare_qemu()):
        environment = {**os.environ, "QEMU_CPU": PLAIN_PROCESSOR}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
