//! Checksums that go with data to the file, so that a file system finds out what changed on the way.

use crate::file::WritableFile;
use ironstone_base::checksum::crc32c;
use ironstone_base::{Error, Result};
use std::path::Path;

/// Hands the CRC-32C of everything that is appended on to the file below. Stands directly below whoever makes the data.
pub struct ChecksumHandoff {
    file: Box<dyn WritableFile>,
}

impl ChecksumHandoff {
    /// In front of `file`, if that is wished.
    pub fn over(file: Box<dyn WritableFile>, wished: bool) -> Box<dyn WritableFile> {
        if wished { Box::new(Self { file }) } else { file }
    }
}

impl WritableFile for ChecksumHandoff {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.file.append_checked(data, crc32c(data))
    }
    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        self.file.append_checked(data, crc32c)
    }
    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }
    crate::leave_to_file_below!();
}

/// Refuses `data`, which is to go to the file at `path`, behind `size` bytes, if `expected` is not its checksum: for files that look
/// at what [`append_checked`](WritableFile::append_checked) hands them.
pub fn check_handed_over(path: &Path, size: u64, data: &[u8], expected: u32) -> Result<()> {
    let found = crc32c(data);
    if found == expected {
        return Ok(());
    }
    let what = format!(
        "data to be written has the checksum {found:#010x}, and was handed over with {expected:#010x}"
    );
    Err(Error::corruption_at(path, size, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, FaultFileSystem, FaultRule};
    use crate::mem::MemFileSystem;
    use crate::traced::{IoCall, IoWatch, TracedFileSystem};
    use crate::watched::{FileOperationInfo, FileOperationWatch, WatchedFileSystem};
    use crate::{FileSystem, SystemClock, WriteOptions};
    use ironstone_base::sync::Arc;

    struct Deaf(bool);
    impl IoWatch for Deaf {
        fn is_on(&self) -> bool {
            self.0
        }
        fn note(&self, _call: &IoCall<'_>) {}
    }

    impl FileOperationWatch for Deaf {
        fn finished(&self, _operation: &FileOperationInfo<'_>) {}
    }

    #[test]
    fn what_changes_on_the_way_is_refused_below() {
        let path = Path::new("/f");
        for watched in [false, true] {
            let mem = MemFileSystem::new();
            let faults = FaultFileSystem::new(Arc::new(mem.clone()));
            let traced = TracedFileSystem::new(Arc::new(faults.clone()), Arc::new(Deaf(watched)));
            let clock = Arc::new(SystemClock::new());
            let told = WatchedFileSystem::new(Arc::new(traced), clock, Arc::new(Deaf(true)));
            let create = |wished: bool| {
                ChecksumHandoff::over(told.create(path, WriteOptions::default()).unwrap(), wished)
            };
            let flip = || faults.add(FaultRule::new(Fault::FlipWrittenBit(12)));
            let mut file = create(true);
            file.append(b"good").unwrap();
            flip();
            let error = file.append(b"data").unwrap_err();
            assert!(error.is_corruption() && error.message().contains("/f at 4"), "{error}");
            file.append(b"data").unwrap();
            file.close().unwrap();
            assert_eq!(mem.read_all(path).unwrap(), b"gooddata", "what was refused is not there");

            let mut file = create(false);
            flip();
            file.append(b"data").unwrap();
            file.close().unwrap();
            assert_eq!(mem.read_all(path).unwrap(), [b'd', b'a' ^ 0x10, b't', b'a'], "nobody knew");
        }
    }
}
