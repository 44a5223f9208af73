//! File names.
//!
//! A name that means a file of a database means the same in the form that we write.

use super::{Seed, Target};
use crate::input::MAX_INPUT;
use ironstone_base::{FileKind, file_name};
use std::path::Path;

pub(super) const TARGET: Target =
    Target { name: "file_name", what: "names of files", run, seeds, mutations: 1_500_000 };

fn run(bytes: &[u8]) {
    let name = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_INPUT)]);
    let Some(kind) = FileKind::parse(&name) else { return };
    let dir = Path::new("");
    let written = match kind {
        FileKind::Wal(number) => file_name::wal(dir, number),
        FileKind::Table(number) => file_name::table(dir, number),
        FileKind::Manifest(number) => file_name::manifest(dir, number),
        FileKind::Options(number) => file_name::options(dir, number),
        FileKind::Temporary(number) => file_name::temporary(dir, number),
        FileKind::Blob(number) => format!("{:06}.blob", number.0).into(),
        FileKind::Current => file_name::current(dir),
        FileKind::Identity => file_name::identity(dir),
        FileKind::Lock => file_name::lock(dir),
        FileKind::InfoLog => file_name::info_log(dir),
        FileKind::Trash => name.as_ref().into(),
    };
    assert_eq!(written.to_str().and_then(FileKind::parse), Some(kind));
}

fn seeds() -> Vec<Seed> {
    let names = [
        "000012.log",
        "000012.sst",
        "000012.ldb",
        "000012.blob",
        "MANIFEST-000012",
        "OPTIONS-000012",
        "OPTIONS-000012.dbtmp",
        "000012.dbtmp",
        "CURRENT",
        "IDENTITY",
        "LOCK",
        "LOG",
        "LOG.old.1700000000000000",
        "18446744073709551615.sst",
        "18446744073709551616.sst",
        "-1.log",
    ];
    names.into_iter().map(|name| Seed::new(name.replace('.', "_"), name)).collect()
}
