//! MANIFESTs: framed edits, damage, and recovery from what that adds up to.
//!
//! ```text
//! shape    u8   bit 0: records, or raw bytes; 1: mend the checksums after the damage; 2: levels 2 or 7
//! records  (length u16 and bytes) ..., a length of zero ends them; then damage, see `log_image`
//! ```
//! Reading ends. What was recovered is written anew by the next commit, and comes back the same.

use super::version_edit::{encoded, samples};
use super::{Seed, Target};
use crate::input::{Input, MAX_INPUT};
use crate::judge::{Steps, check_error};
use crate::log_image::{damage, mend, put_logical};
use ironstone_base::{FileNumber, UserComparator};
use ironstone_version::{
    ColumnFamilyConfig, ManifestOptions, ManifestReader, RecoverOptions, VersionSet, list_column_families,
};
use ironstone_vfs::Env;
use ironstone_wal::LogFramer;
use std::path::Path;

pub(super) const TARGET: Target = Target {
    name: "manifest",
    what: "MANIFESTs and what recovery makes of them",
    run,
    seeds,
    mutations: 150_000,
};

const DIR: &str = "/";
const NAME: &str = "MANIFEST-000005";

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let shape = input.byte();
    let mut bytes = Vec::new();
    if shape & 1 == 0 {
        bytes.extend_from_slice(input.rest());
    } else {
        let mut framer = LogFramer::new(FileNumber(0), false);
        loop {
            let record = input.long();
            if record.is_empty() {
                break;
            }
            put_logical(&mut framer, &mut bytes, record);
        }
        damage(&mut input, &mut bytes);
        if shape & 2 != 0 {
            mend(&mut bytes);
        }
    }
    let env = Env::in_memory();
    let (dir, path) = (Path::new(DIR), Path::new(DIR).join(NAME));
    let written = env
        .fs
        .write_all_synced(&path, &bytes)
        .and_then(|()| env.fs.write_all_synced(&dir.join("CURRENT"), format!("{NAME}\n").as_bytes()));
    written.expect("memory does not fail");
    read(&env, &path, bytes.len());
    let _ = list_column_families(&*env.fs, dir).inspect_err(|error| check_error(error, Some(NAME)));
    let levels = if shape & 4 == 0 { 7 } else { 2 };
    recover(&env, levels);
}

fn read(env: &Env, path: &Path, len: usize) {
    let mut reader = ManifestReader::open(&*env.fs, path).expect("it was just written");
    let mut steps = Steps::new("reading a MANIFEST", len + 8);
    loop {
        steps.take();
        match reader.next_edit() {
            Ok(Some(record)) => assert!(record.offset < len as u64 && reader.valid_size() <= len as u64),
            Ok(None) => break,
            Err(error) => return check_error(&error, Some(NAME)),
        }
    }
    assert_eq!(reader.next_edit(), Ok(None), "the end is not the end");
}

fn recover(env: &Env, num_levels: usize) {
    let family = |name: &str| ColumnFamilyConfig {
        name: name.to_owned(),
        comparator: UserComparator::Bytewise,
        num_levels,
    };
    let options =
        RecoverOptions { column_families: vec![family("default"), family("second")], allow_unlisted: false };
    let recover = || VersionSet::recover(env, Path::new(DIR), options.clone(), ManifestOptions::default());
    let (mut set, mut manifest) = match recover() {
        Ok(recovered) => recovered,
        Err(error) => return check_error(&error, Some(NAME)),
    };
    let before = describe(&set);
    // The numbers of the database alone; a new MANIFEST is begun.
    if let Err(error) = set.log_and_apply(&mut manifest, Vec::new()) {
        return check_error(&error, None);
    }
    drop(manifest);
    let (again, _) = recover().expect("what was just written can be recovered");
    assert_eq!(describe(&again), before, "a MANIFEST written anew says something else");
}

/// What is to stay the same.
fn describe(set: &VersionSet) -> String {
    let mut text = format!("{:?} {:?}", set.last_sequence(), set.db_id());
    for family in set.column_families() {
        text += &format!("\n{} {} log {}", family.id.0, family.name, family.log_number);
        for (level, file) in family.current.all_files() {
            text += &format!("\n  {level} {file:?}");
        }
        text += &format!("\n  {:?}", family.current.blob_files);
    }
    text
}

fn seeds() -> Vec<Seed> {
    let samples = samples();
    let frame = |edits: &[Vec<u8>]| -> Vec<u8> {
        let framed = edits.iter().flat_map(|edit| [&(edit.len() as u16).to_le_bytes()[..], edit].concat());
        framed.chain([0, 0]).collect()
    };
    let all: Vec<Vec<u8>> = samples.iter().map(|(_, edit)| encoded(edit)).collect();
    let mut seeds = vec![
        Seed::new("all", [&[1][..], &frame(&all)].concat()),
        Seed::new("usual", [&[1][..], &frame(&[&all[..2], &all[3..4]].concat())].concat()),
        Seed::new("group", [&[1][..], &frame(&[&all[..1], &all[7..9]].concat())].concat()),
        Seed::new("damaged", [&[1][..], &frame(&all[..2]), &[2, 30, 0, 1, 60, 0, 4, 0]].concat()),
        Seed::new("mended", [&[3][..], &frame(&all[..4]), &[2, 30, 0, 1, 60, 0, 4, 0]].concat()),
        Seed::new("cut", [&[1][..], &frame(&all[..4]), &[0, 3, 100, 0]].concat()),
        Seed::new("two_levels", [&[5][..], &frame(&all[..3])].concat()),
    ];
    for (number, (name, _)) in samples.iter().enumerate().skip(1) {
        let records = frame(&[all[0].clone(), all[number].clone()]);
        seeds.push(Seed::new(format!("first_and_{name}"), [&[1][..], &records].concat()));
    }
    let mut framer = LogFramer::new(FileNumber(0), false);
    let mut raw = vec![0];
    framer.frame(&[&all[0]], &mut raw);
    framer.frame(&[&all[1]], &mut raw);
    seeds.push(Seed::new("raw", raw.clone()));
    // rocksdb#13333: a length for which a reader waited for ever.
    raw[5..7].copy_from_slice(&u16::MAX.to_le_bytes());
    seeds.push(Seed::new("rocksdb_13333_length_beyond_the_block", raw));
    seeds
}
