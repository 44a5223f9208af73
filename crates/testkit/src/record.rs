//! What a run of a harness came to, for `RELIABILITY.md`.

use std::path::PathBuf;

/// Writes `figures` of harness `name` to the directory that `IRONSTONE_RECORD` names; does nothing without it.
///
/// # Panics
/// If the file cannot be written: a campaign must not lose what it found.
#[allow(clippy::disallowed_methods)] // Beside the database.
pub fn record(name: &str, figures: &serde_json::Value) {
    let Some(directory) = std::env::var_os("IRONSTONE_RECORD").map(PathBuf::from) else { return };
    let path = directory.join(format!("{name}.json"));
    std::fs::write(&path, format!("{figures:#}\n"))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
