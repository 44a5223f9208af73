//! `ironstone`, see `ironstone_tools::command`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ironstone_tools::command::main()
}
