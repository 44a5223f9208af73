//! Killed processes, and file systems that lose their power or fill up, a little of each; `cargo xtask campaign` does more.

use std::process::Command;

#[allow(clippy::disallowed_methods)] // Real processes.
fn endure(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_endure")).args(arguments).output().expect("it starts");
    let (said, problem) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "endure {}: {problem}", arguments.join(" "));
    said.into_owned()
}

fn directory(name: &str) -> String {
    let memory = std::path::Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    base.join(format!("ironstone-{name}-{}", std::process::id())).to_string_lossy().into_owned()
}

#[test]
fn a_killed_process_loses_nothing_that_it_was_told_is_written() {
    let seed = std::process::id().to_string();
    let said = endure(&["kill", "100", &seed, &directory("killed")]);
    assert!(said.contains("\"kills\":100"), "{said}");
}

#[test]
fn a_file_system_without_power_loses_nothing_that_was_synced() {
    for kind in ["ext4-ordered", "ext4-writeback", "xfs"] {
        let directory = std::env::temp_dir().join(format!("ironstone-power-{kind}-{}", std::process::id()));
        let said = endure(&["power", "15", "7", &directory.to_string_lossy(), kind]);
        assert!(said.contains("\"losses\":15") || said.starts_with("SKIP"), "{said}");
    }
}

#[test]
fn a_full_file_system_ends_in_errors_and_loses_nothing() {
    for kind in ["ext4-ordered", "xfs", "tmpfs"] {
        let directory = std::env::temp_dir().join(format!("ironstone-full-{kind}-{}", std::process::id()));
        let said = endure(&["full", "4", "3", &directory.to_string_lossy(), kind]);
        assert!(said.contains("\"ends\":4") || said.starts_with("SKIP"), "{said}");
    }
}
