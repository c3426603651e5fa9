#!/bin/sh
# Tells on which systems and Pythons every package of the server has a wheel: resolve.sh UV
#
# Nothing is installed. A system that shall not resolve is here too, so that a change is seen.
set -eu
cd "$(dirname "$0")/../.."
uv=$1
status=0

resolve() { # SYSTEM VERSION
    "$uv" pip install --dry-run --quiet --no-deps --require-hashes --only-binary :all: --python-platform "$1" \
        --python-version "$2" --target build/resolved --requirement services/vecmill_server/requirements.lock \
        --requirement libs/vecmill_minilm/model.lock > build/resolve.log 2>&1
}

expect() { # yes|no SYSTEM...
    expected=$1
    shift
    for system in "$@"; do
        for version in 3.11 3.12 3.13 3.14; do
            if resolve "$system" "$version"; then found=yes; else found=no; fi
            printf '%-24s %-5s %s\n' "$system" "$version" "$found"
            if [ "$found" != "$expected" ]; then
                cat build/resolve.log
                status=1
            fi
        done
    done
}

mkdir -p build
# ONNX Runtime's wheels need macOS 14.
export MACOSX_DEPLOYMENT_TARGET=14.0
expect yes x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin
expect no x86_64-apple-darwin
exit $status
