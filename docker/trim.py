"""Remove files that a server never reads from an environment, then compile all modules.

`python3 trim.py ENVIRONMENT` removes tests, type stubs, C headers and source maps, and the programs of
packages. Modules are compiled here, because the root file system of a container is read-only. Compiled
modules do not depend on the time stamps of their sources.
"""

import shutil
import sys
from compileall import compile_dir
from pathlib import Path
from py_compile import PycInvalidationMode

FOLDERS = ("tests", "__pycache__")
# Tests of onnx, 17 MB. Other folders named `test` stay, because some of them are imported.
PATHS = ("onnx/backend/test",)
SUFFIXES = (".h", ".map", ".pyi")
# Programs that stay: Python, ours, and the compiler of the target neuron.
PROGRAMS = ("python*", "vecmill*", "neuronx*")


def main(environment: Path) -> None:
    """Trim and compile the packages of an environment."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    modules = [folder for folder in packages.iterdir() if folder.is_dir() and folder.suffix != ".dist-info"]
    for module in modules:
        for file in [file for file in module.rglob("*") if file.suffix in SUFFIXES]:
            file.unlink()
        for folder in [folder for name in FOLDERS for folder in module.rglob(name)]:
            shutil.rmtree(folder, ignore_errors=True)
    for path in PATHS:
        shutil.rmtree(packages / path, ignore_errors=True)
    for program in (environment / "bin").iterdir():
        if not any(program.match(pattern) for pattern in PROGRAMS):
            program.unlink()
    installed_at = Path("/", *environment.parts[environment.parts.index("opt") :])
    compile_dir(
        packages,
        quiet=2,
        stripdir=environment,
        prependdir=installed_at,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
