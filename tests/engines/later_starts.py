"""Which heavy packages a start imports, in a process of its own."""

import subprocess
import sys
from pathlib import Path

START = """
import sys
from pathlib import Path
from vecmill.engines import load_engine
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.values.engine_plan import EnginePlan
description = describe_model(locate_model(sys.argv[1]))
engine = load_engine(description, EnginePlan(sys.argv[3]), cores=2, cache_dir=Path(sys.argv[2]))
engine.warm_up()
engine.close()
print(*sorted(set(sys.argv[4:]) & set(sys.modules)))
"""

# What builds graphs, and what none of them should need.
GRAPH_BUILDERS = {"onnx", "onnx_ir", "ml_dtypes"}
NEVER = {"torch", "transformers", "sentence_transformers"}


def imports_of_start(directory: Path, cache_dir: Path, engine: str, *, besides: set[str]) -> set[str]:
    """Those of `GRAPH_BUILDERS`, `NEVER` and `besides` that a start on `engine` imports."""
    watched = sorted(GRAPH_BUILDERS | NEVER | besides)
    command = [sys.executable, "-c", START, str(directory), str(cache_dir), engine, *watched]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return set(ended.stdout.split())
