#!/bin/sh
# Installs the S3 server that the tests and measurements of this crate start: moto, a Python package, in a virtual
# environment below target/remote-servers (or $IRONSTONE_REMOTE_SERVERS). Running it again is cheap.
set -eu

MOTO_VERSION=5.2.5

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
servers=${IRONSTONE_REMOTE_SERVERS:-${CARGO_TARGET_DIR:-$root/target}/remote-servers}
python=$servers/venv/bin/python
mkdir -p "$servers"
"$python" -c "import moto; assert moto.__version__ == '$MOTO_VERSION'" 2>/dev/null && exit
python3 -m venv "$servers/venv"
"$python" -m pip install -q --disable-pip-version-check "moto[s3,server]==$MOTO_VERSION"
