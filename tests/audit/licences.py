"""Lists the licences of the packages of an environment, and refuses those that nobody has allowed.

`python -m audit.licences ENVIRONMENT` prints one line for each package. Exits with 1 if a package has no
licence in its metadata, or a licence that is not listed here.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import MappingProxyType

# Permissive licences, by SPDX identifier.
PERMISSIVE = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "PSF-2.0",
        "Zlib",
    }
)
# Copyleft licences that we have read, with the packages that have them. MPL-2.0 covers changes of its own
# files; the packages are used unchanged.
LISTED: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset({"MPL-2.0"}) for name in ("certifi", "orjson", "tqdm")}
)
# Other names of licences in metadata.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "3-Clause BSD License": "BSD-3-Clause",
        "Apache License 2.0": "Apache-2.0",
        "Apache License, Version 2.0": "Apache-2.0",
        "Apache 2.0": "Apache-2.0",
        "Apache Software License": "Apache-2.0",
        "OSI Approved :: Apache Software License": "Apache-2.0",
        "BSD": "BSD-3-Clause",
        "BSD License": "BSD-3-Clause",
        "MIT License": "MIT",
        "new BSD License": "BSD-3-Clause",
    }
)
LONGEST_NAME = 100  # some packages put the whole text into the field


@dataclass(frozen=True, slots=True)
class Licence:
    """The licence of one package, as an SPDX expression; empty if its metadata has none."""

    package: str
    version: str
    expression: str

    @property
    def problem(self) -> str | None:
        """The reason why the licence is not allowed, or `None`."""
        if not self.expression:
            return "no licence in its metadata"
        if not is_allowed(self.expression, LISTED.get(self.package, frozenset())):
            return f"{self.expression} is not a licence that is allowed"
        return None


def is_allowed(expression: str, listed: frozenset[str] = frozenset()) -> bool:
    """Return whether a person who accepts `PERMISSIVE` and `listed` licences may use the package."""
    text = expression.replace("(", " ( ").replace(")", " ) ")
    while found := re.search(r"\(([^()]*)\)", text):  # innermost parentheses first
        text = text.replace(found[0], " MIT " if is_allowed(found[1], listed) else " REFUSED ", 1)
    parts = [choice.split(" AND ") for choice in re.sub(r"\s+", " ", f" {text.strip()} ").split(" OR ")]
    return any(all(name.strip() in PERMISSIVE | listed for name in names) for names in parts)


def read_licence(package: Distribution) -> Licence:
    """Return the licence in the metadata of a package."""
    fields = package.metadata
    name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
    names = [name for name in ("License-Expression", "License") if name in fields]
    written = next((fields[name] for name in names if fields[name].strip()), "")
    classifiers = [
        entry.rpartition(" :: ")[2]
        for entry in fields.get_all("Classifier") or []
        if entry.startswith("License :: OSI Approved ::")
    ]
    if not written.strip() or len(written) > LONGEST_NAME:
        written = " AND ".join(NAMES.get(entry, entry) for entry in sorted(set(classifiers)))
    return Licence(name, package.version, NAMES.get(written.strip(), written.strip()))


def read_licences(environment: Path) -> list[Licence]:
    """Return the licences of all packages of a virtual environment, by name."""
    folders = [str(folder) for folder in environment.glob("lib/python3*/site-packages")]
    found = (read_licence(package) for package in distributions(path=folders))
    return sorted(found, key=lambda licence: licence.package)


def main(environment: Path) -> None:
    """Print the licences."""
    licences = read_licences(environment)
    for licence in licences:
        problem = licence.problem
        print(
            f"{licence.package:<22} {licence.version:<12} {licence.expression}"
            + (f"  REFUSED: {problem}" if problem else "")
        )
    refused = sum(licence.problem is not None for licence in licences)
    print(f"{len(licences)} packages, {refused} refused")
    sys.exit(0 if licences and not refused else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
