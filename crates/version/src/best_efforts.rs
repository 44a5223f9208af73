//! Recovery without CURRENT, from whatever MANIFEST and tables are there.

use crate::manifest::{ManifestOptions, ManifestReader, ManifestWriter};
use crate::point_in_time::{CheckTable, PointsInTime};
use crate::replay::STATISTICS_COLUMN_FAMILY;
use crate::set::{RecoverOptions, VersionSet};
use ironstone_base::{Code, Error, FileKind, FileNumber, Result, file_name};
use ironstone_vfs::{Env, FileSystem};
use std::collections::BTreeSet;
use std::path::Path;

/// What best-efforts recovery comes to.
pub struct BestEfforts {
    /// The states that were found.
    pub versions: VersionSet,
    /// Starts a new MANIFEST with the first commit.
    pub manifest: ManifestWriter,
    /// For people: what is not in these states, and why. Empty if nothing was given up.
    pub notes: Vec<String>,
}

impl VersionSet {
    /// Whether `dir` holds a MANIFEST that is not empty.
    pub fn has_manifest(fs: &dyn FileSystem, dir: &Path) -> Result<bool> {
        Ok(!manifests(fs, dir)?.is_empty())
    }

    /// Reads the newest MANIFEST that can be read, whatever CURRENT says, and takes of each column family the newest
    /// state whose tables are there, or are but for the newest of level 0; a column family without one is empty. `check`
    /// looks at tables. Column families that groups of edits changed keep together. Writes nothing; numbers of files that
    /// are in `dir` are not handed out again.
    ///
    /// `Corruption` if no MANIFEST can be read; other errors as they come, and those of `check`.
    pub fn recover_best_efforts(
        env: &Env,
        dir: &Path,
        recover: &RecoverOptions,
        options: ManifestOptions,
        check: &mut CheckTable<'_>,
    ) -> Result<BestEfforts> {
        let fs = &*env.fs;
        let mut failures: Vec<String> = Vec::new();
        for number in manifests(fs, dir)?.into_iter().rev() {
            let path = file_name::manifest(dir, number);
            match recover_from(fs, &path, number, recover, check) {
                Ok((versions, mut notes)) => {
                    notes.splice(0..0, failures.iter().map(|failure| format!("not used: {failure}")));
                    for name in fs.list(dir)? {
                        let used = FileKind::parse(&name).and_then(|kind| kind.number());
                        if let Some(used) = used.filter(|&number| number < FileNumber::LARGEST) {
                            versions.mark_file_number_used(used);
                        }
                    }
                    let manifest = ManifestWriter::new(env.clone(), dir.to_owned(), options);
                    return Ok(BestEfforts { versions, manifest, notes });
                }
                // An older one would be no better.
                Err(error) if error.code() != Code::Corruption => return Err(error),
                Err(error) => failures.push(error.to_string()),
            }
        }
        let why = if failures.is_empty() { "there is none".to_owned() } else { failures.join("; ") };
        Err(Error::corruption(format!(
            "{}: best-efforts recovery needs a good MANIFEST (Db::repair does without): {why}",
            dir.display()
        )))
    }
}

fn recover_from(
    fs: &dyn FileSystem,
    path: &Path,
    number: FileNumber,
    recover: &RecoverOptions,
    check: &mut CheckTable<'_>,
) -> Result<(VersionSet, Vec<String>)> {
    let names = recover.column_families.iter().map(|config| config.name.as_str());
    let listed: BTreeSet<String> = names.chain([STATISTICS_COLUMN_FAMILY]).map(str::to_owned).collect();
    let mut points = PointsInTime::new(&listed, check);
    let mut reader = ManifestReader::open(fs, path)?;
    while let Some(record) = reader.next_edit()? {
        points.take(record, path)?;
    }
    let (points, notes) = points.finish();
    let versions = VersionSet::read(ManifestReader::open(fs, path)?, number, recover, Some(points))?;
    Ok((versions, notes))
}

/// Those that are not empty, oldest first.
fn manifests(fs: &dyn FileSystem, dir: &Path) -> Result<BTreeSet<FileNumber>> {
    let mut numbers = BTreeSet::new();
    for name in fs.list(dir)? {
        if let Some(FileKind::Manifest(number)) = FileKind::parse(&name)
            && fs.size(&dir.join(&name))? > 0
        {
            numbers.insert(number);
        }
    }
    Ok(numbers)
}
