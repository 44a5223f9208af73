//! Fuzz targets: each takes any bytes and asserts what must hold for them.
//!
//! A target is a plain function, so the same code runs under libFuzzer (`fuzz/`, nightly) and in the
//! replay test (`tests/replay`, stable). A broken promise is a panic. What every target holds its decoder
//! to: no panic, an end after a bounded number of steps, memory in proportion to the input, errors of the
//! kinds that damage may cause, which name the file where there is one. What more it asserts stands in its
//! own file.
#![forbid(unsafe_code)]

mod directory;
mod input;
mod judge;
mod log_image;
mod table_image;
mod targets;

pub use targets::{Seed, TARGETS, Target};

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target of that name.
///
/// # Panics
/// If a promise is broken, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("there is no fuzz target {name}"));
    (target.run)(bytes);
}
