//! `IDENTITY`: the database's id, a version-4 UUID in text.

use ironstone_base::{Error, FileNumber, Result, file_name};
use ironstone_vfs::FileSystem;
use std::path::Path;

/// The id in `IDENTITY`. RocksDB never writes an empty one, so that is damage.
pub fn read_identity(fs: &dyn FileSystem, dir: &Path) -> Result<String> {
    let path = file_name::identity(dir);
    let bytes = fs.read_all(&path)?;
    let text =
        String::from_utf8(bytes).map_err(|_| Error::corruption_at(&path, 0, "the identity is not text"))?;
    let id = text.trim_end_matches('\n');
    if id.is_empty() {
        return Err(Error::corruption_at(&path, 0, "the identity is empty"));
    }
    Ok(id.to_owned())
}

/// Replaces `IDENTITY`, atomically and durably.
pub fn write_identity(fs: &dyn FileSystem, dir: &Path, id: &str) -> Result<()> {
    let temporary = file_name::temporary(dir, FileNumber(0)); // No MANIFEST has number 0.
    fs.write_all_synced(&temporary, id.as_bytes())?;
    fs.rename(&temporary, &file_name::identity(dir))?;
    fs.open_directory(dir)?.sync()
}

/// The id made of 128 random bits, in the form `xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx`.
pub fn db_id_from_bits(bits: u128) -> String {
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let group = |shift: u32, digits: u32| (bits >> shift) & ((1 << (4 * digits)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        group(96, 8),
        group(80, 4),
        group(64, 4),
        group(48, 4),
        group(0, 12)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_vfs::Env;

    #[test]
    fn line_ends_are_no_part_of_an_identity() {
        let (fs, dir) = (Env::in_memory().fs, Path::new("/"));
        let read = |bytes: &[u8]| {
            fs.write_all_synced(&dir.join("IDENTITY"), bytes).unwrap();
            read_identity(&*fs, dir).map_err(|error| error.to_string())
        };
        for bytes in [&b"an id"[..], b"an id\n", b"an id\n\n"] {
            assert_eq!(read(bytes).as_deref(), Ok("an id"));
        }
        for bytes in [&b""[..], b"\n", b"\n\n"] {
            assert_eq!(read(bytes).unwrap_err(), "Corruption: /IDENTITY at 0: the identity is empty");
        }
    }
}
