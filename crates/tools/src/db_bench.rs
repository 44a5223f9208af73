//! db_bench: measures a database with RocksDB's flags, benchmark names and output lines.
//!
//! ```text
//! command line --> Flags --> EngineOptions --> Target (an open database)
//!                    |                            |
//!                    +--> Benchmark (by name) --> Session runs Workers --> ThreadStats --> Summary --> a line
//! ```

pub mod benchmark;
pub mod command_line;
pub mod engine_options;
pub mod environment;
mod flag;
pub mod flags;
pub mod key;
pub mod random;
pub mod rate_limit;
pub mod reporter;
pub mod session;
pub mod stats;
pub mod target;
pub mod value;
pub mod worker;
pub mod workload;

use command_line::Request;
use ironstone_vfs::os::OsFileSystem;
use session::Session;
use std::process::ExitCode;

/// Runs db_bench with `arguments`, the program's name not among them.
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let request = match command_line::parse(arguments, &OsFileSystem::new()) {
        Ok(request) => request,
        Err(refusal) => {
            eprintln!("{refusal}");
            return ExitCode::FAILURE;
        }
    };
    match request {
        Request::Help => {
            print!("{}", command_line::help());
            ExitCode::SUCCESS
        }
        Request::Version => {
            println!("db_bench of Ironstone {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Request::Run(flags) => match Session::start(*flags).and_then(Session::run) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
    }
}
