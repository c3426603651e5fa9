"""An actor tells the command each error that vecmill does not expect, instead of the death of the actor."""

import json
import os
import subprocess

import pytest

from support.ray_server import RAY, require_ray
from support.source_tree import ROOT

pytestmark = pytest.mark.full

# Ray is installed in an environment of its own, so the actor runs in another process.
PROGRAM = """
import json
from contextlib import asynccontextmanager
from vecmill_ray.bulk import cluster
from vecmill_ray.bulk.blocks import BulkBlock

class Embedder:
    async def embed(self, block):
        raise MemoryError("Unable to allocate 9 GiB.")

@asynccontextmanager
async def open_embedder(job, node):
    if job is None:
        raise ImportError("No module named 'x'")
    yield Embedder()

cluster.open_embedder = open_embedder
batch = {"block": [BulkBlock(0, 0, 0, 1, 1, 1).to_json()]}
print(json.dumps([json.loads(cluster.BlockActor(job)(batch)["outcome"][0]) for job in (None, "job")]))
"""


def test_the_type_and_the_message_of_an_error_arrive() -> None:
    require_ray()
    sources = ("libs/vecmill/src", "services/vecmill_server/src", "services/vecmill_ray/src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in sources)}
    line = [f"{RAY}/bin/python", "-c", PROGRAM]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [
        {"message": "ImportError: No module named 'x'.", "is_final": False},
        {"message": "MemoryError: Unable to allocate 9 GiB.", "is_final": False},
    ]
