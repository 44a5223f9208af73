//! `CURRENT`: the name of the MANIFEST in force and a newline.

use ironstone_base::{Error, FileKind, FileNumber, Result, file_name};
use ironstone_vfs::FileSystem;
use std::path::Path;

/// The number of the MANIFEST that `CURRENT` names.
pub fn current_manifest(fs: &dyn FileSystem, dir: &Path) -> Result<FileNumber> {
    let path = file_name::current(dir);
    let bytes = fs.read_all(&path)?;
    let Some(name) = bytes.strip_suffix(b"\n") else {
        return Err(Error::corruption_at(
            &path,
            bytes.len() as u64,
            "CURRENT file does not end with newline",
        ));
    };
    match std::str::from_utf8(name).ok().and_then(FileKind::parse) {
        Some(FileKind::Manifest(number)) => Ok(number),
        _ => Err(Error::corruption_at(&path, 0, "CURRENT file corrupted: it does not name a MANIFEST")),
    }
}

/// Makes MANIFEST `number` the one in force, atomically and durably. The MANIFEST and its directory
/// entry must be durable already. After an error either MANIFEST may be the one in force.
pub fn set_current(fs: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<()> {
    let temporary = file_name::temporary(dir, number);
    let name = file_name::manifest(dir, number);
    let name = name.file_name().expect("the path of a MANIFEST ends with its name");
    let contents = format!("{}\n", name.to_string_lossy());
    let renamed = fs
        .write_all_synced(&temporary, contents.as_bytes())
        .and_then(|()| fs.rename(&temporary, &file_name::current(dir)));
    if let Err(error) = renamed {
        let _ = fs.remove(&temporary); // Of no use, and the next start removes it anyway.
        return Err(error);
    }
    fs.open_directory(dir)?.sync()
}
