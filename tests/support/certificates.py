"""Certificates that tests make for themselves."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, kind: str) -> tuple[Path, Path]:
    """Write a certificate of a host, which is a `DNS` name or an `IP` address, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command = ["openssl", "req", "-x509", *curve, "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName={kind}:{name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key
