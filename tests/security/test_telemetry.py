"""No program reports to the publisher of a library: the telemetry of ONNX Runtime is off."""

import os
import subprocess
import sys
from pathlib import Path

from support.tiny_models import save_tiny_bert

EMBED = "import sys; from vecmill import SyncMill\nwith SyncMill(sys.argv[1]) as mill: mill.embed(['a'])"


def test_no_identifier_of_the_machine_is_kept(tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    # Not the variables that switch the telemetry off, such as CI.
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", EMBED, save_tiny_bert(tmp_path / "model")],
        env={**kept, "XDG_CACHE_HOME": str(cache), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in cache.iterdir()] == ["vecmill"]
    assert not home.exists()
