"""Finds the control groups of this process, version 1 or 2, which have the limits of a container."""

from pathlib import Path


def list_control_groups(root: Path, controller: str, mount: str) -> list[Path]:
    """Return the folder of the process's control group of `controller`, and the folders of all its parents.

    `controller` is "" for version 2. `root` contains /proc and /sys. `mount` is the folder below `root` where
    the groups are.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    # The format of a line is `number:controller,controller:/path`.
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    paths = [path for _, controllers, path in parts if controller in controllers.split(",")]
    base = root / mount
    folders = []
    for path in paths:
        folder = base / path.lstrip("/")
        folders += [folder, *(parent for parent in folder.parents if parent.is_relative_to(base))]
    return folders
