#!/bin/sh
# Builds an image with docker, podman or buildah, whichever works here: build.sh TARGET BASE TAG [ARCHITECTURE]
#
# ARCHITECTURE is amd64 or arm64, by default that of this machine. The programs of the other one have to start here.
# An empty BASE is the default of docker/Dockerfile.
# The version and the address of the sources are those of the server's pyproject.toml. The revision is git's, and ends with
# -dirty if a file differs from it. It is unknown outside of a clone.
# PIP_CERT and PIP_CONFIG_FILE, if they are set, are passed to the build as secrets.
set -eu
target=$1 base=$2 tag=$3 architecture=${4:-}
cd "$(dirname "$0")/.."

read_project() {
    sed --quiet "s/^$1 = \"\(.*\)\"$/\1/p" services/vecmill_server/pyproject.toml | head -n 1
}
revision=$(git describe --always --abbrev=40 --exclude '*' --dirty 2> /dev/null || echo unknown)

set -- --file docker/Dockerfile --target "$target" --tag "$tag" \
    --build-arg "VERSION=$(read_project version)" --build-arg "SOURCE=$(read_project Source)" \
    --build-arg "REVISION=$revision"
[ -z "$architecture" ] || set -- "$@" --platform "linux/$architecture"
[ -z "$base" ] || set -- "$@" --build-arg "BASE=$base"
[ -z "${PIP_CERT:-}" ] || set -- "$@" --secret "id=certificates,src=$PIP_CERT"
[ -z "${PIP_CONFIG_FILE:-}" ] || set -- "$@" --secret "id=pip_conf,src=$PIP_CONFIG_FILE"

if docker info > /dev/null 2>&1; then
    DOCKER_BUILDKIT=1 exec docker build "$@" .
elif command -v podman > /dev/null; then
    # OCI's own format has no HEALTHCHECK.
    exec podman build --format docker --layers "$@" .
elif command -v buildah > /dev/null; then
    # vfs and chroot work inside a container too. Where overlay works, STORAGE_DRIVER=overlay needs less space.
    exec buildah --storage-driver "${STORAGE_DRIVER:-vfs}" bud --isolation chroot --format docker --layers "$@" .
fi
echo "Building an image needs docker with a running daemon, podman or buildah." >&2
exit 1
