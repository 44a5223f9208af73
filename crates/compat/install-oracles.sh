#!/bin/sh
# Installs the programs that the interop tests compare Ironstone with, and builds their drivers:
#
#   RocksDB 7.8   ldb, sst_dump and the C library    apt: rocksdb-tools librocksdb-dev
#   RocksDB 10.4  Python package rocksdict           pip, in a virtual environment
#   RocksDB 11.8  Java package rocksdbjni            maven; its library for programs in C as well
#   LevelDB 1.23  the C library                      apt: libleveldb-dev
#   valgrind      counts instructions                apt: valgrind
#
# Everything but the apt packages goes to target/oracles (or $IRONSTONE_ORACLES). Running it again is cheap.
# What cannot be installed is named at the end; the exit code is then 1, and tests that need it are skipped.
set -u

ROCKSDICT_VERSION=0.3.29
ROCKSDBJNI_VERSION=11.8.1

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
oracles=${IRONSTONE_ORACLES:-${CARGO_TARGET_DIR:-$root/target}/oracles}
missing=""
mkdir -p "$oracles"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
miss() { missing="$missing $1"; echo "MISSING $1: $2" >&2; }
# Whether output $1 is there and newer than all of the inputs that follow.
fresh() {
  output=$1; shift
  [ -e "$output" ] || return 1
  for input in "$@"; do [ "$output" -nt "$input" ] || return 1; done
}

install_apt() {
  command -v ldb >/dev/null && command -v sst_dump >/dev/null && command -v valgrind >/dev/null &&
    [ -e /usr/include/rocksdb/c.h ] && [ -e /usr/include/leveldb/c.h ] && return
  command -v apt-get >/dev/null || return
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    rocksdb-tools librocksdb-dev libleveldb-dev libsnappy-dev valgrind >"$oracles/apt.log" 2>&1
}

build_c() { # name, source, library
  fresh "$oracles/$1" "$here/oracles/$2.c" "$here/oracles/workload.h" && return
  cc -O1 -o "$oracles/$1" "$here/oracles/$2.c" -l"$3" 2>"$oracles/$1.log" || miss "$1" "see $oracles/$1.log"
}

install_rocksdict() {
  python=$oracles/venv/bin/python
  if ! "$python" -c "import rocksdict" 2>/dev/null; then
    python3 -m venv "$oracles/venv" &&
      "$python" -m pip install -q --disable-pip-version-check "rocksdict==$ROCKSDICT_VERSION" ||
      { miss rocksdict "pip failed"; return; }
  fi
  fresh "$oracles/rocksdict_driver" "$0" && return
  printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$python" "$here/oracles/rocksdict_driver.py" \
    >"$oracles/rocksdict_driver"
  chmod +x "$oracles/rocksdict_driver"
}

install_rocksdbjni() {
  jar=$oracles/rocksdbjni-$ROCKSDBJNI_VERSION.jar
  if ! [ -e "$jar" ]; then
    mvn -q -B dependency:copy -Dartifact="org.rocksdb:rocksdbjni:$ROCKSDBJNI_VERSION" \
      -DoutputDirectory="$oracles" >"$oracles/maven.log" 2>&1 ||
      { miss rocksdbjni "see $oracles/maven.log"; return; }
  fi
  # Where RocksJava does not find the library, every process unpacks it to a temporary file of its own.
  [ -e "$oracles/librocksdbjni-linux64.so" ] || (cd "$oracles" && jar xf "$jar" librocksdbjni-linux64.so) ||
    { miss rocksdbjni "no library in $jar"; return; }
  source=$here/oracles/RocksJavaDriver.java
  fresh "$oracles/RocksJavaDriver.class" "$source" && fresh "$oracles/rocksjava_driver" "$0" && return
  javac -d "$oracles" -cp "$jar" "$source" 2>"$oracles/javac.log" ||
    { miss rocksjava_driver "see $oracles/javac.log"; return; }
  printf '#!/bin/sh\nexec java %s -Djava.library.path="%s" -cp "%s:%s" RocksJavaDriver "$@"\n' \
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" "$oracles" "$jar" "$oracles" >"$oracles/rocksjava_driver"
  chmod +x "$oracles/rocksjava_driver"
}

build_c_with_rocksdbjni() { # name, source
  library=$oracles/librocksdbjni-linux64.so
  [ -e "$library" ] || return # Named already.
  fresh "$oracles/$1" "$here/oracles/$2.c" "$library" && return
  cc -O1 -o "$oracles/$1" "$here/oracles/$2.c" -L"$oracles" -l:librocksdbjni-linux64.so \
    -Wl,-rpath,"$oracles" 2>"$oracles/$1.log" || miss "$1" "see $oracles/$1.log"
}

install_apt
for tool in ldb sst_dump; do command -v $tool >/dev/null || miss $tool "apt: rocksdb-tools"; done
build_c rocksdb_driver rocksdb_driver rocksdb
build_c rocksdb_session_7 rocksdb_session rocksdb
build_c leveldb_driver leveldb_driver leveldb
install_rocksdict
install_rocksdbjni
build_c_with_rocksdbjni rocksdb_damage rocksdb_damage
build_c_with_rocksdbjni rocksdb_session_11 rocksdb_session

[ -z "$missing" ] || { echo "not installed:$missing" >&2; exit 1; }
echo "all oracles are in $oracles"
