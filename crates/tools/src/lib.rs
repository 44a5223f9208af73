//! The programs: `db_bench` and `ironstone`.
#![forbid(unsafe_code)]

pub mod db_bench;
