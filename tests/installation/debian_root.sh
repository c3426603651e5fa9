#!/bin/sh
# Runs a command in a root of Debian's packages, with the Python of a suite: debian_root.sh SUITE COMMAND [ARGUMENT]...
#
# The root is made once, in build/roots/SUITE, and keeps the environments. The sources there are those of this
# working tree: tracked files, and files that git does not ignore. Needs mmdebstrap and the rights of root. The
# mounts vanish with the process. APT_CONF names a file with settings of apt, such as
# `Acquire::Check-Valid-Until "false";` for a mirror that stands still.
set -eu
cd "$(dirname "$0")/../.."
suite=$1
shift
root=$PWD/build/roots/$suite

if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap > /dev/null; then
    echo "This needs the rights of root and mmdebstrap: apt-get install mmdebstrap" >&2
    exit 2
fi

if [ ! -e "$root/usr/bin/python3" ]; then
    echo "making a root of Debian $suite in build/roots/$suite (this needs a network, once)"
    mkdir -p build/roots
    rm -rf "$root.unfinished"
    mmdebstrap --quiet --variant=minbase ${APT_CONF:+--aptopt="$APT_CONF"} \
        --include=python3,python3-venv,ca-certificates,git,make,openssl,procps,curl,iproute2,libgomp1,g++,python3-dev \
        "$suite" "$root.unfinished"
    mv "$root.unfinished" "$root"
fi

# What the programs of this machine know of its network, so that pip finds packages in the same way.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt "${NODE_EXTRA_CA_CERTS:-}" "$HOME/.config/pip/pip.conf" \
        "$HOME/.npmrc"; do
    if [ -e "$file" ]; then
        place=$root$(echo "$file" | sed "s|^$HOME/|/root/|")
        mkdir -p "$(dirname "$place")"
        cp --dereference "$file" "$place"
    fi
done

mkdir -p "$root/vecmill"
find "$root/vecmill" -mindepth 1 -maxdepth 1 ! -name .venv ! -name .git -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference --preserve=mode,timestamps --target-directory "$root/vecmill"
if [ ! -e "$root/vecmill/.git" ]; then
    # Some tests ask git for the files of the project.
    git init --quiet "$root/vecmill"
fi
git -C "$root/vecmill" add --all

variables=$(env | grep -E '^(CI|PIP_[A-Z_]+|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS|(UV|npm_config)_[A-Za-z_]+)=' || true)
# shellcheck disable=SC2086
exec unshare --mount --propagation private sh -eu -c '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    exec chroot "$root" /usr/bin/env --chdir=/vecmill "$@"
' sh "$root" -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 $variables "$@"
