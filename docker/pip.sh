#!/bin/sh
# Runs pip for the environment /opt/vecmill, with the certificates and the pip.conf of the build, if it has them.
# pip's report of each installation has the hashes of the files that it installed, for the bill of materials.
[ ! -f /run/secrets/certificates ] || export PIP_CERT=/run/secrets/certificates
[ ! -f /run/secrets/pip_conf ] || export PIP_CONFIG_FILE=/run/secrets/pip_conf
if [ "$1" = install ]; then
    shift
    mkdir -p /build/reports
    set -- install --report "$(mktemp /build/reports/XXXXXX.json)" "$@"
fi
exec /opt/pip/bin/pip "$@"
