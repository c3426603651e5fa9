"""No program reports to the publisher of a library: the telemetry of the runtimes is off."""

import os
import subprocess
import sys
from pathlib import Path

from support.tiny_models import save_tiny_bert

# Prints what would reach another host, also from a process that an import forks.
EMBED = """
import sys
REACHES = ("urllib.Request", "socket.getaddrinfo", "socket.connect", "os.fork")
sys.addaudithook(lambda event, arguments: event in REACHES and print(event, arguments, flush=True))
from vecmill import MillConfig, SyncMill
for engine in sys.argv[2:]:
    with SyncMill(sys.argv[1], MillConfig(engine=engine)) as mill:
        mill.embed(['a'])
"""


def test_nothing_is_sent_and_no_identifier_is_kept(tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    home.mkdir()
    # Not the variables that switch the telemetry off, such as CI.
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", EMBED, save_tiny_bert(tmp_path / "model"), "onnx", "openvino"],
        env={**kept, "XDG_CACHE_HOME": str(cache), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert [path.name for path in cache.iterdir()] == ["vecmill"]
    assert list(home.iterdir()) == []


def test_only_the_import_goes_without_the_telemetry_of_openvino() -> None:
    program = (
        "import sys; from vecmill.engines import find_engine; find_engine('openvino');"
        "assert 'openvino_telemetry' not in sys.modules; import openvino_telemetry"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_openvino_is_silent_while_another_engine_is_imported() -> None:
    """Engines of several models load side by side. The import of one must not let another one report."""
    program = (
        "import sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from vecmill.engines import find_engine\n"
        "sys.addaudithook(lambda event, _: print(event, flush=True) if event == 'os.fork' else None)\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    list(pool.map(find_engine, ['onnx', 'openvino', 'fake', 'openvino']))\n"
        "from openvino.tools.ovc import telemetry\n"
        "assert type(telemetry).__module__ == 'openvino.tools.ovc.telemetry_stub', type(telemetry)\n"
    )
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, env=kept, check=True, timeout=120, stdout=subprocess.PIPE).stdout == b""
