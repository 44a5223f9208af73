#!/bin/sh
# Installs the servers that the tests and measurements of this crate start:
#
#   moto      S3, a Python package                            pip, in a virtual environment
#   Hadoop    HDFS of one node with its REST interface        maven; needs Java 17 to run
#
# They go to target/remote-servers (or $IRONSTONE_REMOTE_SERVERS). Running it again is cheap. What cannot be installed is
# named; the exit code is then 1, and tests that need it are skipped.
set -u

MOTO_VERSION=5.2.5

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
servers=${IRONSTONE_REMOTE_SERVERS:-${CARGO_TARGET_DIR:-$root/target}/remote-servers}
missing=0
mkdir -p "$servers"

miss() { missing=1; echo "MISSING $1" >&2; }

install_moto() {
  python=$servers/venv/bin/python
  "$python" -c "import moto; assert moto.__version__ == '$MOTO_VERSION'" 2>/dev/null && return
  python3 -m venv "$servers/venv" &&
    "$python" -m pip install -q --disable-pip-version-check "moto[s3,server]==$MOTO_VERSION"
}

install_hadoop() {
  command -v java >/dev/null || return
  if ! [ "$servers/hadoop/complete" -nt "$here/servers/pom.xml" ]; then
    rm -rf "$servers/hadoop"
    mvn -q -B -f "$here/servers/pom.xml" dependency:copy-dependencies -DoutputDirectory="$servers/hadoop" || return
    touch "$servers/hadoop/complete"
  fi
  cp "$here/servers/WebHdfsServer.java" "$servers/hadoop/"
}

install_moto || miss "moto: pip failed"
install_hadoop || miss "Hadoop: Java or Maven are not there, or failed"
exit $missing
