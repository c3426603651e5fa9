#!/bin/sh
# Runs pip for the environment /opt/vecmill, with the certificates and the pip.conf of the build, if it has them.
[ ! -f /run/secrets/certificates ] || export PIP_CERT=/run/secrets/certificates
[ ! -f /run/secrets/pip_conf ] || export PIP_CONFIG_FILE=/run/secrets/pip_conf
exec /opt/pip/bin/pip "$@"
