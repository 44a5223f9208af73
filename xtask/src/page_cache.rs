//! Memory without free pages, as it is where a machine has run for a while.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is read before looking at what is free.
const STEP: u64 = 256 << 20;
/// So many steps in a row that took no free memory end the filling.
const IDLE_STEPS: u32 = 3;

/// A file of holes as long as the machine's memory, which is read until the page cache has all memory that is free.
/// What a run writes then goes to pages that the kernel takes from it. On a virtual machine the first touch of a free page
/// may be the hypervisor's to answer: 10 us each were measured, more than all that an engine does for a record.
pub struct FullPageCache {
    file: File,
    len: u64,
    /// Where the next reading goes on: the pages behind it were read the longest ago, so they are gone first.
    at: Cell<u64>,
}

impl FullPageCache {
    /// With a file in `dir` that has no name.
    pub fn new(dir: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let len = meminfo("MemTotal")?;
        let file = tempfile::tempfile_in(dir)
            .and_then(|file| file.set_len(len).map(|()| file))
            .map_err(|error| format!("{}: a file of {len} bytes: {error}", dir.display()))?;
        Ok(Self { file, len, at: Cell::new(0) })
    }

    /// Fills what is free. Answers the bytes that still are.
    pub fn fill(&self) -> Result<u64, String> {
        let mut buffer = vec![0; 1 << 20];
        let mut free = meminfo("MemFree")?;
        let (mut idle, mut read) = (0, 0);
        while idle < IDLE_STEPS && read < self.len {
            for _ in 0..STEP / buffer.len() as u64 {
                let at = self.at.get();
                let count = self.file.read_at(&mut buffer, at).map_err(|error| format!("read: {error}"))?;
                self.at.set(if count == 0 { 0 } else { at + count as u64 });
            }
            read += STEP;
            let now = meminfo("MemFree")?;
            idle = if now + STEP / 8 > free { idle + 1 } else { 0 };
            free = now;
        }
        Ok(free)
    }
}

/// A line of /proc/meminfo, in bytes.
fn meminfo(name: &str) -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let kib = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix(':')?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.map(|kib| kib << 10).ok_or_else(|| format!("/proc/meminfo has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_meminfo_are_bytes() {
        let (total, free) = (meminfo("MemTotal").unwrap(), meminfo("MemFree").unwrap());
        assert!(free > 0 && free < total && total.is_multiple_of(1024));
        assert_eq!(meminfo("MemNone"), Err("/proc/meminfo has no MemNone".to_owned()));
    }
}
