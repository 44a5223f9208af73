//! The table of targets.

mod backup;
mod crash;
mod current;
mod data_block;
mod decompress;
mod file_name;
mod filter;
mod flat_table;
mod footer;
mod index_block;
mod manifest;
mod open_dir;
mod operations;
mod option_string;
mod options_file;
mod sst;
mod table_parts;
mod trace;
mod version_edit;
mod wal;
mod write_batch;

/// An input to begin with.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The name of its file.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

impl Seed {
    fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

/// A function of any bytes that panics if a promise is broken.
pub struct Target {
    /// Its name: of the libFuzzer binary, and of the directory of its seeds.
    pub name: &'static str,
    /// What it decodes.
    pub what: &'static str,
    /// Runs it on one input.
    pub run: fn(&[u8]),
    /// Its inputs to begin with, made by the real writers.
    pub seeds: fn() -> Vec<Seed>,
    /// How many mutations of its seeds the replay test runs: a few seconds' worth.
    pub mutations: u32,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    data_block::TARGET,
    index_block::TARGET,
    footer::TARGET,
    table_parts::TARGET,
    filter::TARGET,
    decompress::TARGET,
    sst::TARGET,
    flat_table::TARGET,
    wal::TARGET,
    write_batch::TARGET,
    version_edit::TARGET,
    manifest::TARGET,
    current::TARGET,
    options_file::TARGET,
    option_string::TARGET,
    file_name::TARGET,
    backup::TARGET,
    trace::TARGET,
    open_dir::TARGET,
    operations::TARGET,
    crash::TARGET,
];
