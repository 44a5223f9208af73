//! A copy of the repository with all mistakes planted in it, of which a test run chooses one.

use super::catalogue::{Mistake, plant};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tests of the copy read to know which mistake is chosen.
pub const VARIABLE: &str = "IRONSTONE_MISTAKE";

/// What the copy has in the crate `base` in addition.
const MODULE: &str = "\
//! Which mistake is chosen.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static CHOSEN: OnceLock<String> = OnceLock::new();
static NOTED: AtomicBool = AtomicBool::new(false);

/// Whether the mistake `name` is chosen.
#[inline]
pub fn is(name: &str) -> bool {
    CHOSEN.get_or_init(|| std::env::var(\"IRONSTONE_MISTAKE\").unwrap_or_default()) == name
}
/// For mistakes that go from one crate to another: something has happened.
pub fn note() {
    NOTED.store(true, Ordering::SeqCst);
}
/// Whether it has.
pub fn was_noted() -> bool {
    NOTED.load(Ordering::SeqCst)
}
";

/// Makes, or brings up to date, the copy in `to`. Files that are the same are left alone, so that little is
/// compiled again.
pub fn make(root: &Path, to: &Path, mistakes: &[Mistake]) -> Result<(), String> {
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"));
    let planted = plant(mistakes, read)?;
    let mut wanted = BTreeSet::new();
    for file in tracked(root)? {
        let path = root.join(&file);
        if !path.is_file() {
            continue; // Removed, and not committed yet.
        }
        let mut bytes = std::fs::read(&path).map_err(|error| format!("{file}: {error}"))?;
        if let Some(text) = planted.get(&file) {
            bytes = text.clone().into_bytes();
        }
        if file == "crates/base/src/lib.rs" {
            bytes.extend_from_slice(b"\npub mod mistake;\nextern crate self as ironstone_base;\n");
        }
        write(&to.join(&file), &bytes)?;
        wanted.insert(to.join(file));
    }
    let module = to.join("crates/base/src/mistake.rs");
    write(&module, MODULE.as_bytes())?;
    wanted.insert(module);
    remove_others(to, &wanted)
}

fn tracked(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let text = String::from_utf8(output.stdout).map_err(|error| format!("git: {error}"))?;
    Ok(text.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(path.parent().expect("it is a file in the copy")).map_err(failed)?;
    std::fs::write(path, bytes).map_err(failed)
}

fn remove_others(dir: &Path, wanted: &BTreeSet<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}
