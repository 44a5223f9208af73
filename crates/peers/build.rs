//! Compiles the shims of the engines that are asked for, and says what to link them with.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-env-changed=IRONSTONE_PEERS");
    let has = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    // The crates do not say their versions themselves.
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    for crate_name in ["redb", "fjall"] {
        println!(
            "cargo::rustc-env=PEERS_{}_VERSION={}",
            crate_name.to_uppercase(),
            locked_version(crate_name)
        );
    }
    if has("ROCKSDB") {
        // Said by the build script of the crate that builds or finds the library.
        let include =
            env::var("DEP_ROCKSDB_INCLUDE").expect("rust-librocksdb-sys says where its headers are");
        compile("rocksdb.cc", &[include.into()]);
        println!("cargo::rustc-link-lib=uring");
    }
    if has("LEVELDB") {
        compile("leveldb.cc", &[]);
        println!("cargo::rustc-link-lib=leveldb");
    }
    if has("WIREDTIGER") {
        let build = peers().join("wiredtiger/build");
        compile("wiredtiger.c", &[build.join("include")]);
        println!("cargo::rustc-link-search=native={}", build.display());
        println!("cargo::rustc-link-lib=static=wiredtiger");
        println!("cargo::rustc-link-lib=lz4");
    }
    if has("BERKELEYDB") {
        compile("berkeleydb.c", &[]);
        println!("cargo::rustc-link-lib=db-5.3");
    }
}

/// The version of a crate in Cargo.lock.
fn locked_version(crate_name: &str) -> String {
    let lock = std::fs::read_to_string("../../Cargo.lock").unwrap_or_default();
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{crate_name}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
    version.map_or_else(|| "unknown".to_owned(), |version| version.trim_end_matches('"').to_owned())
}

/// Where `install-peers.sh` builds what no package has.
fn peers() -> PathBuf {
    let default =
        || PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../../target/peers");
    env::var_os("IRONSTONE_PEERS").map_or_else(default, PathBuf::from)
}

#[cfg(feature = "shims")]
fn compile(source: &str, includes: &[PathBuf]) {
    let (name, extension) = source.split_once('.').expect("a file name");
    let mut build = cc::Build::new();
    build
        .file(format!("shim/{source}"))
        .includes(includes)
        .opt_level(3)
        .flag("-march=native")
        .define("NDEBUG", None);
    if extension == "cc" {
        build.cpp(true).std("c++20").flag("-fno-rtti");
    }
    build.compile(&format!("peer_{name}"));
}

#[cfg(not(feature = "shims"))]
fn compile(_: &str, _: &[PathBuf]) {}
