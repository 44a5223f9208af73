//! `db_bench`, see `ironstone_tools::db_bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ironstone_tools::db_bench::main(std::env::args().skip(1))
}
