//! File systems of their own for tests, in a file on a loop device or in memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BYTES: u64 = 400 << 20;

/// A file system to test on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The command that makes one in a file; none for one in memory.
    make: &'static [&'static str],
    mount: &'static str,
}

/// ext4 in its two modes, XFS and tmpfs.
pub const KINDS: [Kind; 4] = [
    Kind { name: "ext4-ordered", make: &["mkfs.ext4", "-q", "-F"], mount: "data=ordered" },
    Kind { name: "ext4-writeback", make: &["mkfs.ext4", "-q", "-F"], mount: "data=writeback" },
    Kind { name: "xfs", make: &["mkfs.xfs", "-q", "-f"], mount: "defaults" },
    Kind { name: "tmpfs", make: &[], mount: "size=400m" },
];

impl Kind {
    /// Whether it is there again after it was taken away.
    pub fn stays(self) -> bool {
        !self.make.is_empty()
    }
}

/// Why this machine cannot run it, if so.
pub fn missing(kind: Kind) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".to_owned());
    }
    let make = kind.make.first()?;
    let found = Command::new("sh").args(["-c", &format!("command -v {make}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        None
    } else {
        Some(format!("{make} is not installed"))
    }
}

/// A file system that is mounted, until the value goes.
pub(super) struct Mounted {
    directory: PathBuf,
    kind: Kind,
    is_mounted: bool,
}

impl Mounted {
    /// Makes one of `kind` below `directory` and mounts it. `None`, after saying why, if this machine does not mount it.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn make(directory: &Path, kind: Kind) -> Result<Option<Self>, String> {
        let mut made = Self { directory: directory.to_owned(), kind, is_mounted: false };
        let text = |error: std::io::Error| error.to_string();
        std::fs::create_dir_all(made.point()).map_err(text)?;
        if let [make, arguments @ ..] = kind.make {
            std::fs::File::create(made.image()).and_then(|file| file.set_len(BYTES)).map_err(text)?;
            run(Command::new(make).args(arguments).arg(made.image()))?;
        }
        if let Err(reason) = made.mount() {
            eprintln!("{reason}");
            let _ = std::fs::remove_dir_all(directory);
            return Ok(None);
        }
        Ok(Some(made))
    }
    /// Where it is mounted.
    pub(super) fn point(&self) -> PathBuf {
        self.directory.join("mounted")
    }
    fn image(&self) -> PathBuf {
        self.directory.join("image")
    }

    pub(super) fn mount(&mut self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        match self.kind.stays() {
            true => mount.args(["-o", &format!("loop,{}", self.kind.mount)]).arg(self.image()),
            false => mount.args(["-t", self.kind.name, "-o", self.kind.mount, self.kind.name]),
        };
        run(mount.arg(self.point()))?;
        self.is_mounted = true;
        Ok(())
    }
    #[allow(clippy::disallowed_methods)]
    pub(super) fn unmount(&mut self) -> Result<(), String> {
        let mut tries = 0;
        while let Err(error) = run(Command::new("umount").arg(self.point())) {
            tries += 1;
            if tries > 50 {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20)); // Somebody may still look at it.
        }
        self.is_mounted = false;
        Ok(())
    }
    /// Takes it away for good.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn remove(mut self) -> Result<(), String> {
        self.unmount()?;
        std::fs::remove_dir_all(&self.directory).map_err(|error| error.to_string())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = self.unmount();
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
