#!/bin/sh
# Installs and builds what the peers of `crates/peers` are linked with:
#
#   RocksDB       the sources that the crate rust-librocksdb-sys carries, built here with -O3 -march=native
#   WiredTiger    the Python registry's source package, built with cmake
#   LevelDB, BerkeleyDB, libclang (for the bindings of RocksDB)    apt: libleveldb-dev libdb5.3-dev libclang1-14
#   io_uring, which RocksDB reads with    apt: liburing-dev
#
# Libraries go to target/peers (or $IRONSTONE_PEERS). Running it again is cheap. What cannot be built is named at the end;
# the exit code is then 1, and `cargo xtask peers` leaves that engine out.
#
# RocksDB is compiled as a unity build, some thirty sources a translation unit, as its own Makefile can ("unity_test"): the
# same code and flags as the crate's build script, in a fifth of the time.
set -u

ROCKSDB_CRATE=rust-librocksdb-sys-0.49.0+11.12.0
WIREDTIGER_VERSION=11.3.1
SOURCES_PER_UNIT=30

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
peers=${IRONSTONE_PEERS:-${CARGO_TARGET_DIR:-$root/target}/peers}
missing=""
mkdir -p "$peers"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
miss() { missing="$missing $1"; echo "MISSING $1: $2" >&2; }

install_apt() {
  [ -e /usr/include/leveldb/c.h ] && [ -e /usr/include/db.h ] && [ -e /usr/include/liburing.h ] && ls /usr/lib/llvm-*/lib/libclang.so* >/dev/null 2>&1 && return
  command -v apt-get >/dev/null || return
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    libleveldb-dev libdb5.3-dev libclang1-14 liblz4-dev liburing-dev >"$peers/apt.log" 2>&1
}

build_rocksdb() {
  lib=$peers/rocksdb/librocksdb.a
  [ -e "$lib" ] && return
  (cd "$root" && cargo fetch -q)
  crate=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/$ROCKSDB_CRATE 2>/dev/null | head -1)
  [ -n "$crate" ] || { miss rocksdb "the crate $ROCKSDB_CRATE is not in cargo's registry"; return; }
  work=$peers/rocksdb
  mkdir -p "$work"
  rm -f "$work"/unit*
  # Fixed names: the include path has to stay good when cargo cleans its registry.
  cp -r "$crate/rocksdb/include" "$work/"
  grep -v -e '^$' -e '^util/build_version.cc$' "$crate/rocksdb_lib_sources.txt" |
    sed -e 's/.*/#include "&"/' | (cd "$work" && split -l $SOURCES_PER_UNIT -d --additional-suffix=.cc - unit)
  cp "$crate/build_version.cc" "$work/unit_version.cc"
  for unit in "$work"/unit*.cc; do
    c++ -std=c++20 -O3 -march=native -DNDEBUG -fno-rtti -fno-builtin-memcmp -fPIC -w -include cstdint -c -o "${unit%.cc}.o" \
      -I"$crate/rocksdb/include" -I"$crate/rocksdb" -I"$crate" -DLZ4=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION \
      -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_BACKTRACE \
      -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_MALLOC_USABLE_SIZE -DROCKSDB_PTHREAD_ADAPTIVE_MUTEX -DROCKSDB_RANGESYNC_PRESENT -DROCKSDB_IOURING_PRESENT \
      -DROCKSDB_SCHED_GETCPU_PRESENT "$unit" 2>"$work/build.log" ||
      { miss rocksdb "see $work/build.log"; return; }
    echo "rocksdb: $(basename "$unit")"
  done
  ar crs "$lib.part" "$work"/unit*.o && mv "$lib.part" "$lib"
}

build_wiredtiger() {
  lib=$peers/wiredtiger/build/libwiredtiger.a
  [ -e "$lib" ] && return
  work=$peers/wiredtiger
  rm -rf "$work"
  mkdir -p "$work"
  (
    cd "$work" &&
      python3 -m pip download -q --no-deps --no-binary :all: "wiredtiger==$WIREDTIGER_VERSION" &&
      tar xf "wiredtiger-$WIREDTIGER_VERSION.tar.gz" --strip-components=1 &&
      cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="-O3 -march=native -w" -DENABLE_STRICT=0 -DENABLE_PYTHON=0 \
        -DENABLE_STATIC=1 -DENABLE_SHARED=0 -DENABLE_LZ4=0 -DHAVE_BUILTIN_EXTENSION_LZ4=1 -DENABLE_CPPSUITE=0 -DHAVE_UNITTEST=0 -DHAVE_DIAGNOSTIC=0 &&
      cmake --build build -j1 --target wiredtiger_static
  ) >"$work.log" 2>&1 || miss wiredtiger "see $work.log"
}

install_apt
[ -e /usr/include/leveldb/c.h ] || miss leveldb "apt: libleveldb-dev"
[ -e /usr/include/db.h ] || miss berkeleydb "apt: libdb5.3-dev"
build_rocksdb
build_wiredtiger

[ -z "$missing" ] || { echo "not built:$missing" >&2; exit 1; }
echo "all peers are in $peers"
