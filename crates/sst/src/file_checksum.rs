//! Checksums of whole files, which the MANIFEST keeps: whoever copies or stores a table can check it without
//! knowing its format.

use crate::limited_file::LimitedFile;
use crate::options::{BuildOptions, ReadContext, TableOptions};
use ironstone_base::checksum::crc32c_extend;
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{Error, Result};
use ironstone_vfs::{ChecksumHandoff, FileSystem, RandomAccessFile, WritableFile};
use std::path::Path;

/// For what a checksum is to be made.
#[derive(Clone, Copy, Debug)]
pub struct FileChecksumContext<'a> {
    /// The file.
    pub file_name: &'a Path,
    /// The function that is asked for, since the MANIFEST has a checksum by it; `None` for a new file.
    pub requested_function: Option<&'a str>,
}

/// Makes [`FileChecksumGenerator`]s. Called by several threads at once.
pub trait FileChecksumGenFactory: Send + Sync {
    /// Its name, for the OPTIONS file.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// A generator for a file.
    fn create(&self, context: &FileChecksumContext<'_>) -> Box<dyn FileChecksumGenerator>;
}

/// Makes the checksum of one file from its bytes, front to back.
pub trait FileChecksumGenerator: Send {
    /// The name of the function, which the MANIFEST keeps.
    fn name(&self) -> &str;
    /// The next bytes.
    fn update(&mut self, bytes: &[u8]);
    /// The checksum of all bytes so far.
    fn checksum(&self) -> Vec<u8>;
}

/// RocksDB's built-in factory: CRC-32C, as four bytes, the highest first.
pub struct FileChecksumGenCrc32cFactory;

impl FileChecksumGenCrc32cFactory {
    /// The name that OPTIONS files have.
    pub const NAME: &str = "FileChecksumGenCrc32cFactory";
}

impl FileChecksumGenFactory for FileChecksumGenCrc32cFactory {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn create(&self, _context: &FileChecksumContext<'_>) -> Box<dyn FileChecksumGenerator> {
        Box::new(Crc32c(0))
    }
}

struct Crc32c(u32);

impl FileChecksumGenerator for Crc32c {
    fn name(&self) -> &str {
        "FileChecksumCrc32c"
    }
    fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c_extend(self.0, bytes);
    }
    fn checksum(&self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }
}

/// A checksum, and the name of the function that made it; both empty if there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileChecksum {
    /// The bytes.
    pub checksum: Vec<u8>,
    /// The function.
    pub function: String,
}

impl FileChecksum {
    fn of(generator: &dyn FileChecksumGenerator) -> Self {
        Self { checksum: generator.checksum(), function: generator.name().to_owned() }
    }

    /// Reads the file at `path` and compares its checksum with this one.
    ///
    /// # Errors
    /// `Corruption` that names the file if it is another one; `InvalidArgument` if `factory` does not know the function.
    pub fn check(
        &self,
        fs: &dyn FileSystem,
        path: &Path,
        factory: &dyn FileChecksumGenFactory,
    ) -> Result<()> {
        self.compare(&Self::of_file(fs, path, factory, Some(&self.function))?, path, factory)
    }
    /// Compares `found`, which is what `factory` makes of the file at `path`, with this one. Errors as [`check`](Self::check).
    pub fn compare(&self, found: &Self, path: &Path, factory: &dyn FileChecksumGenFactory) -> Result<()> {
        if found.function != self.function {
            return Err(Error::invalid_argument(format!(
                "{}: its checksum is by {}, but {} makes those of {}",
                path.display(),
                self.function,
                factory.name(),
                found.function
            )));
        }
        if found.checksum != self.checksum {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let (now, then) = (hex(&found.checksum), hex(&self.checksum));
            let what = format!("the whole file's checksum is {now}, but it was written with {then}");
            return Err(Error::corruption_at(path, 0, what));
        }
        Ok(())
    }

    /// Reads the file at `path` and makes the checksum that `function` names, or whichever `factory` likes.
    pub fn of_file(
        fs: &dyn FileSystem,
        path: &Path,
        factory: &dyn FileChecksumGenFactory,
        function: Option<&str>,
    ) -> Result<Self> {
        let mut generator =
            factory.create(&FileChecksumContext { file_name: path, requested_function: function });
        let mut file = fs.open_sequential(path)?;
        let mut chunk = vec![0; 1 << 20];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(Self::of(&*generator)),
                count => generator.update(&chunk[..count]),
            }
        }
    }
}

impl FileChecksum {
    /// The same of an open file, whose reads heed the times and the rate limiter's priority of `context`, by clock and rate
    /// limiter of `table`.
    pub fn of_open_file(
        file: &dyn RandomAccessFile,
        factory: &dyn FileChecksumGenFactory,
        function: Option<&str>,
        table: &TableOptions,
        context: &ReadContext,
    ) -> Result<Self> {
        let asked = FileChecksumContext { file_name: file.path(), requested_function: function };
        let mut generator = factory.create(&asked);
        let limited = LimitedFile {
            file,
            limits: context.limits,
            clock: &*table.clock,
            rate: table.rate_limiter.as_deref().zip(context.rate_limiter_priority),
            statistics: table.statistics.as_deref(),
        };
        let size = file.size();
        let mut chunk = vec![0; CHUNK.min(size) as usize];
        let mut at = 0;
        while at < size {
            let want = CHUNK.min(size - at) as usize;
            let count = limited.read_at(at, &mut chunk[..want])?;
            if count == 0 {
                return Err(Error::corruption_at(file.path(), at, "the file has become shorter"));
            }
            generator.update(&chunk[..count]);
            at += count as u64;
        }
        Ok(Self::of(&*generator))
    }
}

/// So much is read at once where reads may have to wait.
const CHUNK: u64 = 256 << 10;

type Shared = Arc<Mutex<Box<dyn FileChecksumGenerator>>>;

/// Sees the bytes of a file on their way.
pub(crate) struct FileWithChecksum {
    file: Box<dyn WritableFile>,
    generator: Shared,
}

/// Answers the checksum of what was appended to a file so far.
pub(crate) struct ChecksumSoFar(Option<Shared>);

impl ChecksumSoFar {
    pub(crate) fn get(&self) -> FileChecksum {
        self.0.as_ref().map_or_else(FileChecksum::default, |generator| FileChecksum::of(&**generator.lock()))
    }
}

/// The file that a builder writes to: a generator of file checksums sees what goes to `file`, and checksums go with it, as the
/// options say.
pub(crate) fn watched(
    file: Box<dyn WritableFile>,
    options: &BuildOptions,
) -> (Box<dyn WritableFile>, ChecksumSoFar) {
    let (file, so_far) = with_checksum(file, options.file_checksum.as_ref());
    (ChecksumHandoff::over(file, options.checksum_handoff), so_far)
}

fn with_checksum(
    file: Box<dyn WritableFile>,
    factory: Option<&Arc<dyn FileChecksumGenFactory>>,
) -> (Box<dyn WritableFile>, ChecksumSoFar) {
    let Some(factory) = factory else { return (file, ChecksumSoFar(None)) };
    let context = FileChecksumContext { file_name: file.path(), requested_function: None };
    let generator: Shared = Arc::new(Mutex::new(factory.create(&context)));
    let file = FileWithChecksum { file, generator: Arc::clone(&generator) };
    (Box::new(file), ChecksumSoFar(Some(generator)))
}

impl WritableFile for FileWithChecksum {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.generator.lock().update(data);
        self.file.append(data)
    }
    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        self.generator.lock().update(data);
        self.file.append_checked(data, crc32c)
    }
    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }
    ironstone_vfs::leave_to_file_below!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_function_is_crc32c_with_the_highest_byte_first() {
        let path = Path::new("1.sst");
        let context = FileChecksumContext { file_name: path, requested_function: None };
        let mut generator = FileChecksumGenCrc32cFactory.create(&context);
        generator.update(b"1234");
        generator.update(b"56789");
        // The check value of CRC-32C.
        assert_eq!(generator.checksum(), [0xe3, 0x06, 0x92, 0x83]);
        assert_eq!(generator.name(), "FileChecksumCrc32c");
    }
}
