"""A program that loads a model computes with denormals as before."""

import subprocess
import sys
from pathlib import Path

from support.tiny_models import save_tiny_bert

# A new process: ONNX Runtime changes the thread that opens the first session.
LOAD = """
import sys
from pathlib import Path
import numpy as np
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.models import locate_model
from vecmill.values.engine_plan import EnginePlan
description = describe_model(locate_model(sys.argv[1]))
load_engine(description, EnginePlan(), cores=1, cache_dir=Path(sys.argv[2])).warm_up()
assert np.float64(2.2e-308) * np.float64(0.1) > 0
"""


def test_the_thread_that_loads_keeps_denormals(tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path / "model")
    subprocess.run([sys.executable, "-c", LOAD, model, tmp_path / "cache"], check=True, timeout=120)
