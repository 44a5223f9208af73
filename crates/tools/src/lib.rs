//! The programs: `db_bench` and `ironstone`.
#![forbid(unsafe_code)]

pub mod command;
pub mod db_bench;
