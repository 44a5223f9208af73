//! `ironstone`: a demonstration, and a hand on any database, RocksDB's too.

pub mod access;
pub mod demo;
pub mod lineitem;
pub mod opening;
pub mod progress;
pub mod text;
pub mod traces;

use clap::{Args, Parser, Subcommand};
use ironstone::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Ironstone: an LSM key-value store that reads and writes RocksDB's files.
#[derive(Parser, Debug)]
#[command(name = "ironstone", version, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Loads TPC-H lineitem rows, reads them back in every way, and checks that each byte is right.
    Demo(DemoArguments),
    /// Prints the value of a key.
    Get {
        #[command(flatten)]
        place: Place,
        /// The key.
        key: String,
    },
    /// Sets a key to a value.
    Put {
        #[command(flatten)]
        place: Place,
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Deletes a key; fine if it does not exist.
    Delete {
        #[command(flatten)]
        place: Place,
        /// The key.
        key: String,
    },
    /// Prints keys and values in order, `key : value` a line.
    Scan {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        range: ScanRange,
    },
    /// Prints a trace of the block cache, one access a line, in RocksDB's format for people and scripts.
    BlockCacheTrace {
        /// The file that `Db::start_block_cache_trace`, `db_bench` or RocksDB wrote.
        file: PathBuf,
    },
    /// Prints the shape of a database: column families, levels, estimates, statistics.
    Stats {
        #[command(flatten)]
        place: Place,
    },
}

/// Which database and column family, and how keys and values are written.
#[derive(Args, Debug)]
pub struct Place {
    /// The directory of the database.
    pub dir: PathBuf,
    /// The column family.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub column_family: String,
    /// Keys and values are hexadecimal, with or without 0x before them.
    #[arg(long)]
    pub hex: bool,
}

/// Which part of a database to print.
#[derive(Args, Debug)]
pub struct ScanRange {
    /// The first key.
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,
    /// The key after the last.
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,
    /// Stop after so many.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// From the last key to the first.
    #[arg(long)]
    pub reverse: bool,
    /// Leave the values out.
    #[arg(long)]
    pub keys_only: bool,
}

/// What the demonstration does.
#[derive(Args, Debug)]
pub struct DemoArguments {
    /// Where the database goes; it must not exist yet [default: a new directory for temporary files]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// How many rows to load [default: 1000000]
    #[arg(long, conflicts_with = "scale")]
    pub rows: Option<u64>,
    /// Load all rows of this TPC-H scale factor; 1 has about 6 million.
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// How many random rows to read back.
    #[arg(long, default_value_t = 200_000)]
    pub reads: u64,
    /// Keep the database at the end.
    #[arg(long)]
    pub keep: bool,
}

/// Runs `ironstone` with the arguments of the process.
pub fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            // Help and version are no failures; everything else is one, with code 1 as for any error.
            let _ = error.print(); // If nobody listens, there is nobody to tell.
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match command.action.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ironstone: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Action {
    fn run(self) -> Result<ExitCode> {
        match self {
            Self::Demo(arguments) => demo::run(&arguments),
            Self::Get { place, key } => access::get(&place, &key),
            Self::Put { place, key, value } => access::put(&place, &key, &value),
            Self::Delete { place, key } => access::delete(&place, &key),
            Self::Scan { place, range } => access::scan(&place, &range),
            Self::BlockCacheTrace { file } => traces::block_cache(&file),
            Self::Stats { place } => access::stats(&place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        Command::command().debug_assert();
    }
}
