"""Configuration files of `vecmill serve`, and the files that `vecmill deploy render` makes from them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vecmill_server.deploy.command import Target, render_target
from vecmill_server.deploy.deployed_server import read_server
from vecmill_server.deploy.rendering import Rendering

COMMIT = "0123456789abcdef0123456789abcdef01234567"

# An empty file serves the embedded model.
SMALL = ""
LARGE = f"""
[server]
host = "0.0.0.0"
port = 8001
url_prefix = "/embed"
api_key_file = "/etc/vecmill/keys"
lame_duck_s = 2.5
max_connections = 10000

[defaults]
max_batch_tokens = 1024

[[models]]
model = "owner/embedder@{COMMIT}"
alias = ["text-embedding-3-small"]
engine = "onnx"
precision = "int8"

[[models]]
model = "/nonexistent/models/reranker"
task = "rerank"
engine = "torch"

[deploy]
image = "registry.example:5000/team/vecmill:1.2"
replicas = 1
cores = 4
memory_mib = 4096
gpus = 2
cache_gib = 50
program = "{Path(sys.executable).parent / "vecmill"}"
"""
BATCHES = """
[server]
batch_dir = "/var/lib/vecmill"
"""
# What an operator of a platform asks for: traces, keys, a reduced precision, several models and replicas.
STRICT = f"""
[server]
host = "0.0.0.0"
port = 8002
api_key_file = "keys"
tracing = true
lame_duck_s = 0
access_log = false

[[models]]
model = "all-MiniLM-L6-v2"
name = "docs"
engine = "onnx"
precision = "int8"

[[models]]
model = "all-MiniLM-L6-v2"
name = "queries"

[deploy]
replicas = 2
cores = 1
memory_mib = 1024
cache_claim = "prepared"
program = "{Path(sys.executable).parent / "vecmill"}"

[deploy.ray]
image = "registry.example/vecmill:ray"
"""
CONFIGURATIONS: Mapping[str, str] = {"small": SMALL, "large": LARGE, "batches": BATCHES, "strict": STRICT}
# Ray keeps no files and batches.
CASES = [
    (target, name) for target in Target for name in CONFIGURATIONS if (target, name) != ("ray", "batches")
]


def render_text(folder: Path, target: Target, text: str, name: str = "vecmill") -> Rendering:
    """Return the files of `target` for a configuration file NAME.toml with this text."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return render_target(target, read_server(path), Path("out"))


def read_yaml(text: str) -> Any:
    """Return the document of a file, read by the parser in C, which takes a tenth of the time."""
    return yaml.load(text, yaml.CSafeLoader)


def write_rendering(folder: Path, rendering: Rendering) -> None:
    """Write the files of a rendering."""
    for name, text in rendering.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
