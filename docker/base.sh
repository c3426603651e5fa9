#!/bin/sh
# Makes a base for images from Debian's packages, without a registry of images: base.sh SUITE TAG [ARCHITECTURE]
#
# ARCHITECTURE is Debian's name of it, by default that of this machine. The programs of another one have to start here.
# The base has Debian's essential packages and Python. Manuals and translations are left out, licences are not.
# Needs mmdebstrap, and docker, podman or buildah.
set -eu
suite=$1 tag=$2 architecture=${3:-$(dpkg --print-architecture)}
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT

# mmdebstrap looks for QEMU in /usr/bin, but binfmt_misc may start another one, so this check is skipped.
mmdebstrap --variant=essential --skip=check/qemu --architectures="$architecture" --include=python3,python3-venv,libstdc++6,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    "$suite" "$folder/root.tar"

if docker info > /dev/null 2>&1; then
    docker import --platform "linux/$architecture" "$folder/root.tar" "$tag"
elif command -v podman > /dev/null; then
    podman import --arch "$architecture" "$folder/root.tar" "$tag"
else
    # The storage of docker/build.sh.
    store() { buildah --storage-driver "${STORAGE_DRIVER:-vfs}" "$@"; }
    container=$(store from scratch)
    store add --quiet "$container" "$folder/root.tar" /
    store config --arch "$architecture" --cmd /bin/sh "$container"
    store commit --quiet --rm --format docker "$container" "$tag"
fi
