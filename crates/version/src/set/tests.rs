use super::*;
use crate::blob_file::{BlobFileAddition, BlobFileGarbage};
use crate::{ManifestLimits, VersionBuilder, WalAddition};
use ironstone_base::{InternalKeyBuf, ValueType};
use ironstone_vfs::fault::{FaultError, FaultFileSystem, FaultRule};
use ironstone_vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone_vfs::{ManualClock, SystemClock};
use std::fmt::Write;
use std::path::PathBuf;

const DIR: &str = "/db";

fn env_of(fs: impl FileSystem + 'static) -> Env {
    Env { fs: Arc::new(fs), clock: Arc::new(ManualClock::new(0)) }
}

fn mem() -> MemFileSystem {
    let fs = MemFileSystem::new();
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs.open_directory(Path::new("/")).unwrap().sync().unwrap();
    fs
}

fn config(name: &str) -> ColumnFamilyConfig {
    ColumnFamilyConfig { name: name.to_owned(), comparator: UserComparator::Bytewise, num_levels: 7 }
}

fn create(env: &Env) -> Result<(VersionSet, ManifestWriter)> {
    VersionSet::create_new(
        env,
        Path::new(DIR),
        config("default"),
        Some("id".into()),
        ManifestOptions::default(),
    )
}

fn recover_with(env: &Env, column_families: Vec<ColumnFamilyConfig>) -> Result<(VersionSet, ManifestWriter)> {
    let recover = RecoverOptions { column_families, allow_unlisted: false };
    VersionSet::recover(env, Path::new(DIR), recover, ManifestOptions::default())
}

fn recover(env: &Env) -> Result<(VersionSet, ManifestWriter)> {
    recover_with(env, vec![config("default")])
}

/// A table with keys `smallest..=largest` and sequence numbers from `sequence` on.
fn table(number: u64, smallest: &str, largest: &str, sequence: u64, epoch: u64) -> Arc<FileMetaData> {
    let key = |user: &str, sequence| {
        InternalKeyBuf::new(user.as_bytes(), SequenceNumber(sequence), ValueType::Value)
    };
    let mut file = FileMetaData::new(
        FileNumber(number),
        1000 + number,
        key(smallest, sequence + 1),
        key(largest, sequence),
    );
    (file.smallest_seqno, file.largest_seqno) = (SequenceNumber(sequence), SequenceNumber(sequence + 1));
    file.epoch_number = epoch;
    Arc::new(file)
}

fn edit(added: &[(usize, Arc<FileMetaData>)], deleted: &[(usize, u64)]) -> VersionEdit {
    let deleted_files = deleted.iter().map(|&(level, number)| (level, FileNumber(number))).collect();
    VersionEdit { new_files: added.to_vec(), deleted_files, ..VersionEdit::default() }
}

/// All that a version set says, in text.
fn describe(set: &VersionSet) -> String {
    let mut text = String::new();
    for state in set.column_families() {
        let (id, name, order) = (state.id.0, &state.name, state.comparator.name());
        writeln!(text, "column family {id} {name} {order} log {}", state.log_number).unwrap();
        for (level, file) in state.current.all_files() {
            writeln!(
                text,
                "  L{level} {} size {} [{:?} .. {:?}] seq {}..{} epoch {} blob {}",
                file.number,
                file.file_size,
                file.smallest,
                file.largest,
                file.smallest_seqno,
                file.largest_seqno,
                file.epoch_number,
                file.oldest_blob_file_number,
            )
            .unwrap();
        }
        for (number, file) in &state.current.blob_files {
            let (count, bytes) = (file.addition.blob_count, file.addition.blob_bytes);
            let (garbage, linked) = (file.garbage_count, &file.linked_tables);
            writeln!(text, "  blob {number} count {count} bytes {bytes} garbage {garbage} linked {linked:?}")
                .unwrap();
        }
    }
    let (next, sequence) = (set.next_file_number(), set.last_sequence());
    writeln!(text, "next file {next} last sequence {sequence} prev log {}", set.prev_log_number()).unwrap();
    let (max, keep) = (set.max_column_family(), set.min_log_number_to_keep());
    writeln!(text, "max column family {max} min log to keep {keep} wals {:?}", set.wals()).unwrap();
    text
}

/// The column families and tables only.
fn tables_of(set: &VersionSet) -> String {
    describe(set).lines().take_while(|line| !line.starts_with("next file")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_new_database_comes_back_empty() {
    let env = env_of(mem());
    assert!(recover(&env).err().unwrap().is_path_not_found());
    let (created, manifest) = create(&env).unwrap();
    assert_eq!(manifest.takes_more(false), Some(FileNumber(1)));
    let (recovered, manifest) = recover(&env).unwrap();
    assert_eq!(describe(&recovered), describe(&created));
    assert_eq!((recovered.db_id(), recovered.manifest_number()), (Some("id"), FileNumber(1)));
    assert_eq!(manifest.takes_more(false), None, "recovery starts a new MANIFEST");
    assert_eq!(list_column_families(&*env.fs, Path::new(DIR)).unwrap(), ["default"]);
    assert!(create(&env).err().unwrap().to_string().starts_with("Invalid argument"), "CURRENT is there");
}

#[test]
fn nothing_is_created_over_a_database_that_lost_current() {
    for name in ["000007.sst", "000007.log", "000007.ldb", "000007.blob", "MANIFEST-000005"] {
        let fs = mem();
        fs.write_all_synced(&Path::new(DIR).join(name), b"precious").unwrap();
        let error = create(&env_of(fs.clone())).err().unwrap();
        assert!(error.is_corruption() && error.to_string().contains(name), "{error}");
        assert_eq!(fs.list(Path::new(DIR)).unwrap(), [name]);
    }
    // What an interrupted creation leaves is no database.
    let fs = mem();
    for name in ["MANIFEST-000001", "000001.dbtmp", "IDENTITY", "LOCK", "LOG", "OPTIONS-000003"] {
        fs.write_all_synced(&Path::new(DIR).join(name), b"rest").unwrap();
    }
    create(&env_of(fs)).unwrap();
}

#[test]
fn edits_come_back_in_the_same_and_in_a_new_manifest() {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    let cf = ColumnFamilyId::DEFAULT;
    let steps = [
        edit(&[(0, table(10, "a", "m", 1, 1))], &[]),
        edit(&[(0, table(11, "c", "z", 10, 2)), (1, table(12, "a", "b", 1, 1))], &[]),
        edit(&[(1, table(13, "c", "d", 1, 1)), (1, table(9, "e", "f", 1, 1))], &[]),
        edit(&[(2, table(12, "a", "b", 1, 1))], &[(1, 12)]), // Moves.
        edit(&[(1, table(14, "c", "z", 1, 1))], &[(0, 10), (0, 11), (1, 13), (1, 9)]),
    ];
    for (index, step) in steps.into_iter().enumerate() {
        let mut step = step;
        step.log_number = Some(FileNumber(index as u64 + 3));
        set.mark_file_number_used(FileNumber(20));
        set.log_and_apply(&mut manifest, vec![step]).unwrap();
        let (again, _) = recover(&env).unwrap();
        assert_eq!(describe(&again), describe(&set), "step {index}");
        again.column_family(cf).unwrap().current.check_invariants().unwrap();
        if index % 2 == 0 {
            (set, manifest) = recover(&env).unwrap();
        }
    }
    let version = &set.column_family(cf).unwrap().current;
    assert_eq!(version.num_files(), 2);
    assert_eq!((version.level_bytes(1), version.total_bytes(), version.last_level()), (1014, 2026, Some(2)));
    assert_eq!(set.last_sequence(), SequenceNumber(11));
    assert_eq!(set.column_family(cf).unwrap().log_number, FileNumber(7));
    assert_eq!(set.min_log_number(), FileNumber(7));
}

#[test]
fn manifests_roll_when_they_are_large() {
    let fs = mem();
    let env = env_of(fs.clone());
    let (mut set, mut manifest) = create(&env).unwrap();
    manifest.set_limits(ManifestLimits { max_file_size: 2000, max_space_amp_pct: 0 });
    let mut numbers = BTreeSet::new();
    for round in 0..100 {
        let number = set.new_file_number().0;
        let deleted = set.column_family(ColumnFamilyId::DEFAULT).unwrap().current.files(1).to_vec();
        let deleted: Vec<_> = deleted.iter().map(|file| (1, file.number.0)).collect();
        set.log_and_apply(&mut manifest, vec![edit(&[(1, table(number, "a", "b", round, 1))], &deleted)])
            .unwrap();
        numbers.insert(set.manifest_number());
        assert_eq!(recover(&env).map(|(set, _)| describe(&set)).unwrap(), describe(&set));
        assert_eq!(set.live_manifests(), BTreeSet::from([set.manifest_number()]));
        let witness = manifest.witness().unwrap();
        verify_manifest_witness(&*env.fs, Path::new(DIR), &witness).unwrap();
        assert_eq!(witness.size, fs.size(&file_name::manifest(Path::new(DIR), witness.number)).unwrap());
    }
    assert!((3..50).contains(&numbers.len()), "{numbers:?}");
    manifest.roll();
    let before = describe(&set).replace("next file", "").len();
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    assert!(!numbers.contains(&set.manifest_number()));
    assert_eq!(describe(&set).replace("next file", "").len(), before);
    assert_eq!(recover(&env).map(|(set, _)| describe(&set)).unwrap(), describe(&set));
}

/// How large the MANIFEST is when `commit` begins a new one, and how large the new one is then; a commit is less than 200 bytes.
fn sizes_at_roll(
    limits: ManifestLimits,
    files: u64,
    commit: impl Fn(&mut VersionSet, &mut ManifestWriter) -> Result<()>,
) -> (u64, u64) {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    let table_of = |at: u64| {
        let (low, high) = (format!("k{at:04}a"), format!("k{at:04}b"));
        (1, table(set.new_file_number().0, &low, &high, 1, 1))
    };
    let tables: Vec<_> = (0..files).map(table_of).collect();
    set.log_and_apply(&mut manifest, vec![edit(&tables, &[])]).unwrap();
    manifest.roll();
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    let (first, first_size) = (set.manifest_number(), manifest.witness().unwrap().size);
    manifest.set_limits(limits);
    loop {
        let before = manifest.witness().unwrap().size;
        commit(&mut set, &mut manifest).unwrap();
        if set.manifest_number() != first {
            return (before, first_size);
        }
    }
}

#[test]
fn a_manifest_may_grow_the_more_the_larger_it_began() {
    let background =
        |set: &mut VersionSet, manifest: &mut ManifestWriter| set.log_and_apply(manifest, vec![]).map(drop);
    let foreground = |set: &mut VersionSet, manifest: &mut ManifestWriter| {
        let pending = set.prepare_in_foreground(vec![], manifest)?;
        set.commit(manifest, pending).map(drop)
    };
    for percent in [0, 50, 500] {
        let limits = ManifestLimits { max_file_size: 3000, max_space_amp_pct: percent };
        let (at, began) = sizes_at_roll(limits, 1, background);
        assert!(began < 400 && (3000..3200).contains(&at), "the floor counts: {at} after {began}");
        let (at, began) = sizes_at_roll(limits, 200, background);
        let limit = began * (100 + u64::from(percent)) / 100;
        assert!(began > 3200 && (limit..limit + 200).contains(&at), "{at} after {began}, {percent} percent");
        let (at, _) = sizes_at_roll(limits, 200, foreground);
        assert!((limit * 5 / 4..limit * 5 / 4 + 200).contains(&at), "who waits, waits rarely: {at}, {limit}");
    }
    let boundless = ManifestLimits { max_file_size: u64::MAX, max_space_amp_pct: u32::MAX };
    assert_eq!((boundless.of(u64::MAX, true), boundless.of(0, false)), (u64::MAX, u64::MAX));
}

#[test]
fn column_families_come_and_go() {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    let create_one = |set: &mut VersionSet, manifest: &mut ManifestWriter, name: &str| {
        let pending = set.prepare_create(&config(name), FileNumber(5), Vec::new(), manifest)?;
        set.commit(manifest, pending).map(|installed| installed.added.unwrap())
    };
    let one = create_one(&mut set, &mut manifest, "one").unwrap();
    let two = create_one(&mut set, &mut manifest, "two").unwrap();
    assert_eq!((one, two), (ColumnFamilyId(1), ColumnFamilyId(2)));
    assert!(create_one(&mut set, &mut manifest, "two").is_err());
    assert!(create_one(&mut set, &mut manifest, "").is_err());
    let mut in_one = edit(&[(0, table(30, "a", "b", 1, 1))], &[]);
    in_one.column_family = one;
    set.log_and_apply(&mut manifest, vec![in_one.clone()]).unwrap();
    assert_eq!(list_column_families(&*env.fs, Path::new(DIR)).unwrap(), ["default", "one", "two"]);

    let error = recover(&env).err().unwrap();
    assert!(error.to_string().contains("Column families not opened: one, two"), "{error}");
    let all = || ["two", "default", "one"].map(config).to_vec();
    assert_eq!(recover_with(&env, all()).map(|(set, _)| describe(&set)).unwrap(), describe(&set));
    let some =
        RecoverOptions { column_families: vec![config("default"), config("two")], allow_unlisted: true };
    let (partial, writer) =
        VersionSet::recover(&env, Path::new(DIR), some, ManifestOptions::default()).unwrap();
    assert_eq!(partial.unlisted().values().collect::<Vec<_>>(), ["one"]);
    assert!(partial.prepare(vec![], &writer).is_err(), "it would forget the others");

    let held = set.column_family(one).unwrap().current.clone();
    let pending = set.prepare_drop(one, &manifest).unwrap();
    let dropped = set.commit(&mut manifest, pending).unwrap().dropped.unwrap();
    assert_eq!(dropped.name, "one");
    assert!(set.live_files().contains(&FileNumber(30)) && set.take_obsolete_files().is_empty());
    drop((held, dropped));
    drop(in_one.new_files.clone());
    assert_eq!(set.take_obsolete_files().len(), 0, "the edit still holds it");
    let late = in_one;
    assert_eq!(set.log_and_apply(&mut manifest, vec![late]).unwrap_err().code(), Code::ColumnFamilyDropped);
    assert_eq!(set.take_obsolete_files().len(), 1);
    assert!(set.prepare_drop(ColumnFamilyId::DEFAULT, &manifest).is_err());
    assert!(set.prepare_drop(one, &manifest).is_err());
    // Ids are never used again, not even across a new MANIFEST.
    let pending = set.prepare_drop(two, &manifest).unwrap();
    set.commit(&mut manifest, pending).unwrap();
    let (mut set, mut manifest) = recover(&env).unwrap();
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    let (mut set, mut manifest) = recover(&env).unwrap();
    assert_eq!(create_one(&mut set, &mut manifest, "one").unwrap(), ColumnFamilyId(3));
}

#[test]
fn the_comparator_must_be_the_same() {
    let env = env_of(mem());
    create(&env).unwrap();
    let reverse = ColumnFamilyConfig { comparator: UserComparator::ReverseBytewise, ..config("default") };
    let error = recover_with(&env, vec![reverse]).err().unwrap();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(
        error.to_string().contains(
            "rocksdb.ReverseBytewiseComparator: does not match existing comparator leveldb.BytewiseComparator"
        ),
        "{error}"
    );
    let error = recover_with(&env, vec![config("other")]).err().unwrap();
    assert!(error.to_string().contains("Default column family not specified"));
}

#[test]
fn fewer_levels_than_files_need_is_refused() {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    set.log_and_apply(&mut manifest, vec![edit(&[(6, table(10, "a", "b", 1, 1))], &[])]).unwrap();
    let few = ColumnFamilyConfig { num_levels: 6, ..config("default") };
    let error = recover_with(&env, vec![few.clone()]).err().unwrap();
    assert!(error.to_string().contains("db has more levels than options.num_levels"), "{error}");
    set.log_and_apply(&mut manifest, vec![edit(&[(1, table(11, "a", "b", 1, 1))], &[(6, 10)])]).unwrap();
    recover_with(&env, vec![few]).unwrap();
}

#[test]
fn edits_that_break_the_order_are_refused_and_change_nothing() {
    let fs = mem();
    let env = env_of(fs.clone());
    let (mut set, mut manifest) = create(&env).unwrap();
    let good = edit(&[(1, table(10, "d", "h", 1, 1)), (0, table(11, "a", "z", 5, 2))], &[]);
    set.log_and_apply(&mut manifest, vec![good]).unwrap();
    let before = (describe(&set), fs.read_all(&Path::new(DIR).join("MANIFEST-000001")).unwrap());
    let no_epoch = table(12, "x", "y", 1, 0);
    for (bad, why) in [
        (edit(&[(1, table(12, "h", "k", 1, 1))], &[]), "overlapping ranges"),
        (edit(&[(1, table(12, "a", "e", 1, 1))], &[]), "overlapping ranges"),
        (edit(&[(1, table(12, "z", "y", 1, 1))], &[]), "ends before it begins"),
        (edit(&[(1, table(10, "x", "y", 1, 1))], &[]), "already in the LSM tree on level 1"),
        (edit(&[(2, table(10, "x", "y", 1, 1))], &[]), "already in the LSM tree on level 1"),
        (edit(&[], &[(1, 99)]), "not in the LSM tree"),
        (edit(&[], &[(2, 10)]), "it is on level 1"),
        (edit(&[], &[(1, 10), (1, 10)]), "not in the LSM tree"),
        (edit(&[(0, table(12, "c", "d", 7, 2))], &[]), "same epoch number but overlapping"),
        (edit(&[(1, no_epoch)], &[]), "no epoch number"),
        (edit(&[(7, table(12, "x", "y", 1, 1))], &[]), "more levels"),
    ] {
        let error = set.log_and_apply(&mut manifest, vec![bad]).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        let now = (describe(&set), fs.read_all(&Path::new(DIR).join("MANIFEST-000001")).unwrap());
        assert_eq!(now, before);
    }
    let backwards = VersionEdit { log_number: Some(FileNumber(9)), ..VersionEdit::default() };
    set.log_and_apply(&mut manifest, vec![backwards.clone()]).unwrap();
    let backwards = VersionEdit { log_number: Some(FileNumber(8)), ..backwards };
    assert!(set.log_and_apply(&mut manifest, vec![backwards]).is_err());
    assert_eq!(manifest.takes_more(false), Some(FileNumber(1)), "nothing was poisoned");
}

#[test]
fn an_atomic_group_takes_effect_as_a_whole() {
    let fs = mem();
    let env = env_of(fs.clone());
    let (mut set, mut manifest) = create(&env).unwrap();
    let pending = set.prepare_create(&config("one"), FileNumber(2), Vec::new(), &manifest).unwrap();
    set.commit(&mut manifest, pending).unwrap();
    let path = Path::new(DIR).join("MANIFEST-000001");
    let (before, start) = (tables_of(&set), fs.size(&path).unwrap());
    let mut in_one = edit(&[(0, table(30, "a", "b", 1, 1))], &[]);
    in_one.column_family = ColumnFamilyId(1);
    let group = vec![edit(&[(0, table(31, "a", "b", 1, 1))], &[]), in_one, VersionEdit::default()];
    set.log_and_apply(&mut manifest, group).unwrap();
    let (after, bytes) = (tables_of(&set), fs.read_all(&path).unwrap());
    for cut in start as usize..bytes.len() {
        fs.corrupt(&path, |file| *file = bytes[..cut].to_vec()).unwrap();
        let (set, _) = recover_with(&env, vec![config("default"), config("one")]).unwrap();
        assert_eq!(tables_of(&set), before, "cut at {cut}");
    }
    fs.corrupt(&path, |file| *file = bytes.clone()).unwrap();
    let (set, _) = recover_with(&env, vec![config("default"), config("one")]).unwrap();
    assert_eq!(tables_of(&set), after);
}

/// A new database to whose MANIFEST `edit` was appended.
fn env_with(edit: &VersionEdit) -> Env {
    let fs = mem();
    let env = env_of(fs.clone());
    create(&env).unwrap();
    let mut record = Vec::new();
    edit.encode(&mut record);
    let append = |bytes: &mut Vec<u8>| {
        let mut framer = ironstone_wal::LogFramer::continue_at(FileNumber(0), false, bytes.len() as u64);
        framer.frame(&[&record], bytes);
    };
    fs.corrupt(&Path::new(DIR).join("MANIFEST-000001"), append).unwrap();
    env
}

#[test]
fn a_manifest_that_drops_the_default_column_family_is_damaged() {
    let drop = ColumnFamilyChange::Drop;
    let edit = VersionEdit { column_family_change: Some(drop), ..VersionEdit::default() };
    let error = recover(&env_with(&edit)).err().unwrap();
    assert!(error.is_corruption(), "{error}");
    assert!(error.to_string().contains("/db/MANIFEST-000001 at "), "{error}");
}

#[test]
fn no_file_gets_a_number_below_those_of_wals_that_are_not_replayed() {
    let edit = VersionEdit { min_log_number_to_keep: Some(FileNumber(70)), ..VersionEdit::default() };
    let (set, _) = recover(&env_with(&edit)).unwrap();
    assert!(set.new_file_number() >= FileNumber(70));
}

#[test]
fn file_numbers_that_would_wrap_around_are_damage() {
    for number in [FileNumber::LARGEST.0 + 1, u64::MAX] {
        let next_file_number = Some(FileNumber(number));
        let edit = VersionEdit { next_file_number, ..VersionEdit::default() };
        let error = recover(&env_with(&edit)).err().unwrap();
        assert!(error.is_corruption() && error.to_string().contains("/db/MANIFEST-000001"), "{error}");
    }
}

#[test]
fn a_group_with_a_gap_is_damage() {
    let records = |remaining: &[Option<u32>]| {
        let mut group = crate::manifest::GroupBuffer::default();
        let mut ready = 0;
        for &remaining_in_group in remaining {
            let edit = VersionEdit { remaining_in_group, ..VersionEdit::default() };
            ready += group.push(crate::ManifestRecord { offset: 0, edit })?.len();
        }
        Ok(ready)
    };
    assert_eq!(records(&[None, Some(2), Some(1), Some(0), None, Some(0)]), Ok(6));
    assert_eq!(records(&[None, Some(2), Some(1)]), Ok(1));
    let bad = Err(ironstone_base::Corrupt("corrupted atomic group"));
    assert_eq!(records(&[Some(2), Some(0)]), bad);
    assert_eq!(records(&[Some(2), None]), bad);
    assert_eq!(records(&[Some(1), Some(1)]), bad);
}

#[test]
fn files_are_obsolete_once_nobody_holds_a_version_with_them() {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    let cf = ColumnFamilyId::DEFAULT;
    set.log_and_apply(&mut manifest, vec![edit(&[(0, table(10, "a", "b", 1, 1))], &[])]).unwrap();
    let reader = set.column_family(cf).unwrap().current.clone();
    // It moves down under new metadata, and then goes.
    set.log_and_apply(&mut manifest, vec![edit(&[(1, table(10, "a", "b", 1, 1))], &[(0, 10)])]).unwrap();
    assert!(set.take_obsolete_files().is_empty());
    set.log_and_apply(&mut manifest, vec![edit(&[(1, table(11, "a", "b", 1, 1))], &[(1, 10)])]).unwrap();
    assert!(set.take_obsolete_files().is_empty(), "the reader has it");
    assert_eq!(set.live_files(), HashSet::from([FileNumber(10), FileNumber(11)]));
    drop(reader);
    let obsolete: Vec<_> = set.take_obsolete_files().iter().map(|file| file.number.0).collect();
    assert_eq!(obsolete, [10]);
    assert!(set.take_obsolete_files().is_empty());
    assert_eq!(set.live_files(), HashSet::from([FileNumber(11)]));
    // A move alone makes nothing obsolete, ever.
    let file = set.column_family(cf).unwrap().current.files(1)[0].clone();
    set.log_and_apply(&mut manifest, vec![edit(&[(2, file)], &[(1, 11)])]).unwrap();
    assert!(set.take_obsolete_files().is_empty());
    // It moved as it was, twice, and goes all the same.
    let file = set.column_family(cf).unwrap().current.files(2)[0].clone();
    set.log_and_apply(&mut manifest, vec![edit(&[(3, file)], &[(2, 11)])]).unwrap();
    set.log_and_apply(&mut manifest, vec![edit(&[], &[(3, 11)])]).unwrap();
    let obsolete: Vec<_> = set.take_obsolete_files().iter().map(|file| file.number.0).collect();
    assert_eq!(obsolete, [11]);
    assert!(set.live_files().is_empty());
}

#[test]
fn epochs_and_sequences_are_made_up_for_old_databases() {
    let order = InternalKeyComparator::default();
    let mut builder = VersionBuilder::new(Arc::new(Version::empty(order, 7)));
    let files =
        [(0, table(5, "a", "b", 30, 0)), (0, table(9, "a", "b", 10, 0)), (0, table(7, "a", "b", 50, 0))];
    builder.apply(&edit(&files, &[])).unwrap();
    let files = [(1, table(3, "a", "b", 2, 0)), (1, table(4, "c", "d", 2, 0)), (3, table(2, "a", "b", 1, 0))];
    builder.apply(&edit(&files, &[])).unwrap();
    let (version, next) = builder.build_recovered(SequenceNumber(99)).unwrap();
    let epochs: Vec<_> =
        version.all_files().map(|(level, file)| (level, file.number.0, file.epoch_number)).collect();
    assert_eq!(epochs, [(0, 7, 5), (0, 5, 4), (0, 9, 3), (1, 3, 2), (1, 4, 2), (3, 2, 1)]);
    assert_eq!(next, 6);
}

#[test]
fn blob_files_stay_while_tables_refer_to_them() {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    let with_blob = |number, blob| {
        let mut file = FileMetaData::clone(&table(number, "a", "b", number, number));
        file.oldest_blob_file_number = FileNumber(blob);
        Arc::new(file)
    };
    let addition = |number| BlobFileAddition {
        number: FileNumber(number),
        blob_count: 10,
        blob_bytes: 100,
        checksum_method: Vec::new(),
        checksum_value: Vec::new(),
    };
    let garbage = |number, garbage_count| BlobFileGarbage {
        number: FileNumber(number),
        garbage_count,
        garbage_bytes: garbage_count * 10,
    };
    let mut first = edit(&[(0, with_blob(10, 20)), (0, with_blob(11, 21))], &[]);
    first.blob_file_additions = vec![addition(20), addition(21), addition(22)];
    set.log_and_apply(&mut manifest, vec![first]).unwrap();
    let blobs = |set: &VersionSet| {
        set.column_family(ColumnFamilyId::DEFAULT)
            .unwrap()
            .current
            .blob_files
            .keys()
            .map(|n| n.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(blobs(&set), [20, 21, 22]);
    let blob_file_garbages = vec![garbage(20, 4), garbage(22, 10)];
    let second = VersionEdit { blob_file_garbages, ..VersionEdit::default() };
    set.log_and_apply(&mut manifest, vec![second]).unwrap();
    assert_eq!(blobs(&set), [20, 21], "nothing but garbage, and no table begins with it");
    assert_eq!(recover(&env).map(|(set, _)| describe(&set)).unwrap(), describe(&set));
    let over = VersionEdit { blob_file_garbages: vec![garbage(20, 7)], ..VersionEdit::default() };
    assert!(set.log_and_apply(&mut manifest, vec![over]).unwrap_err().is_corruption());
    set.log_and_apply(&mut manifest, vec![edit(&[], &[(0, 10)])]).unwrap();
    assert_eq!(blobs(&set), [21]);
    let obsolete: Vec<_> = set.take_obsolete_blob_files().iter().map(|file| file.addition.number.0).collect();
    assert_eq!(obsolete.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&20, &22]));
    (set, manifest) = recover(&env).unwrap();
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    assert_eq!(recover(&env).map(|(set, _)| describe(&set)).unwrap(), describe(&set));
}

#[test]
fn wals_are_kept_track_of() {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    let wal = |number, synced_size| WalAddition { number: FileNumber(number), synced_size };
    for wal in [wal(4, None), wal(4, Some(100)), wal(6, Some(50)), wal(4, Some(90)), wal(8, None)] {
        let edit = VersionEdit { wal_additions: vec![wal], ..VersionEdit::default() };
        set.log_and_apply(&mut manifest, vec![edit]).unwrap();
    }
    let (mut set, mut manifest) = recover(&env).unwrap();
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    let (mut set, mut manifest) = recover(&env).unwrap();
    assert_eq!(set.wals().iter().collect::<Vec<_>>(), [wal(4, Some(100)), wal(6, Some(50)), wal(8, None)]);
    let sizes = |four, six| move |number: FileNumber| Ok(if number.0 == 4 { four } else { six });
    set.wals().check(sizes(Some(100), Some(60))).unwrap();
    assert!(set.wals().check(sizes(Some(99), Some(60))).is_err());
    assert!(set.wals().check(sizes(Some(100), None)).is_err());
    let edit = VersionEdit { wal_deletion: Some(FileNumber(6)), ..VersionEdit::default() };
    set.log_and_apply(&mut manifest, vec![edit]).unwrap();
    set.wals().check(sizes(None, Some(50))).unwrap();
    assert_eq!(recover(&env).map(|(set, _)| describe(&set)).unwrap(), describe(&set));
}

#[test]
fn needed_wals_stay_until_they_are_struck_off() {
    let env = env_of(mem());
    let (mut set, mut manifest) = create(&env).unwrap();
    let wal = |number, size| WalAddition { number: FileNumber(number), synced_size: Some(size) };
    let mut edit = VersionEdit::new(ColumnFamilyId::DEFAULT);
    edit.log_number = Some(FileNumber(9));
    edit.needed_wals = vec![wal(4, 100), wal(6, 50)];
    set.log_and_apply(&mut manifest, vec![edit]).unwrap();
    let (mut set, mut manifest) = recover(&env).unwrap();
    // A new MANIFEST has them too.
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    let (mut set, mut manifest) = recover(&env).unwrap();
    assert_eq!(set.needed_wals().collect::<Vec<_>>(), [wal(4, 100), wal(6, 50)]);
    let (min_log_number_to_keep, needed_wals) = (Some(FileNumber(6)), vec![wal(7, 10)]);
    let edit = VersionEdit { min_log_number_to_keep, needed_wals, ..VersionEdit::default() };
    set.log_and_apply(&mut manifest, vec![edit]).unwrap();
    assert_eq!(set.needed_wals().collect::<Vec<_>>(), [wal(6, 50), wal(7, 10)]);
    let (set, _) = recover(&env).unwrap();
    assert_eq!(set.needed_wals().collect::<Vec<_>>(), [wal(6, 50), wal(7, 10)]);
}

#[test]
fn candidates_come_newest_first_and_skip_what_cannot_hold_the_key() {
    let order = InternalKeyComparator::default();
    let mut builder = VersionBuilder::new(Arc::new(Version::empty(order, 7)));
    let long = |tail: &str| format!("a prefix of more than eight bytes {tail}");
    builder
        .apply(&edit(
            &[
                (0, table(20, "b", "d", 50, 5)),
                (0, table(21, "a", "z", 60, 6)),
                (0, table(22, "x", "z", 70, 7)),
                (1, table(10, &long("a"), &long("c"), 20, 1)),
                (1, table(11, &long("d"), &long("f"), 20, 1)),
                (1, table(12, "b", "c", 20, 1)),
                (1, table(13, "e", "g", 20, 1)),
                (2, table(5, "a", "c", 10, 1)),
                (2, table(6, "c", "d", 5, 1)), // The entries of "c" are cut over two files.
                (4, table(1, "a", "z", 1, 1)),
            ],
            &[],
        ))
        .unwrap();
    let version = builder.build().unwrap();
    let found = |user: &str| -> Vec<(usize, u64)> {
        let key = InternalKeyBuf::for_seek(user.as_bytes(), SequenceNumber::MAX);
        version.candidates(key.as_key()).map(|(level, file)| (level, file.number.0)).collect()
    };
    assert_eq!(found("c"), [(0, 21), (0, 20), (1, 12), (2, 5), (2, 6), (4, 1)]);
    assert_eq!(found("d"), [(0, 21), (0, 20), (2, 6), (4, 1)]);
    assert_eq!(found("y"), [(0, 22), (0, 21), (4, 1)]);
    assert_eq!(found(&long("b")), [(0, 21), (1, 10), (2, 5), (4, 1)]);
    assert_eq!(found(&long("cc")), [(0, 21), (2, 5), (4, 1)]);
    assert_eq!(found(&long("e")), [(0, 21), (1, 11), (2, 5), (4, 1)]);
    assert_eq!(found("zz"), []);
    // An older snapshot of "c" starts in the second file.
    let key = InternalKeyBuf::for_seek(b"c", SequenceNumber(6));
    let levels: Vec<_> = version.candidates(key.as_key()).map(|(_, file)| file.number.0).collect();
    assert_eq!(levels, [21, 20, 6, 1]);

    let numbers = |level, begin: Option<&str>, end: Option<&str>| -> Vec<u64> {
        let (begin, end) = (begin.map(str::as_bytes), end.map(str::as_bytes));
        let files = version.overlapping_inputs(level, begin, end);
        assert_eq!(version.range_overlaps(level, begin, end), !files.is_empty());
        files.iter().map(|file| file.number.0).collect()
    };
    assert_eq!(numbers(1, Some("c"), Some("e")), [12, 13]);
    assert_eq!(numbers(1, Some("d"), Some("dd")), [0u64; 0]);
    assert_eq!(numbers(1, None, Some("b")), [10, 11, 12]);
    assert_eq!(numbers(2, None, None), [5, 6]);
    assert_eq!(numbers(0, Some("c"), Some("c")), [22, 21, 20], "level 0 is taken transitively");
    assert_eq!(numbers(9, None, None), [0u64; 0]);
}

// --- Faults, crashes, damage.

/// A run of commits with column families, groups, rolls. Calls `after` with the state after each
/// acknowledged commit.
fn workload(env: &Env, mut after: impl FnMut(&VersionSet)) -> Result<()> {
    let (mut set, mut manifest) = create(env)?;
    after(&set);
    manifest.set_limits(ManifestLimits { max_file_size: 700, max_space_amp_pct: 0 });
    for round in 0..6u64 {
        if round == 1 {
            let pending = set.prepare_create(&config("one"), FileNumber(2), Vec::new(), &manifest)?;
            set.commit(&mut manifest, pending)?;
            after(&set);
        }
        let epoch = set.new_epoch_number(ColumnFamilyId::DEFAULT);
        let flushed = table(set.new_file_number().0, "a", "b", round * 10, epoch);
        let mut group = vec![edit(&[(0, flushed)], &[])];
        if round >= 2 {
            let mut in_one = edit(&[(0, table(set.new_file_number().0, "a", "b", round * 10, epoch))], &[]);
            in_one.column_family = ColumnFamilyId(1);
            in_one.log_number = Some(FileNumber(round));
            group.push(in_one);
        }
        set.log_and_apply(&mut manifest, group)?;
        after(&set);
        if round % 3 == 2 {
            let version = set.column_family(ColumnFamilyId::DEFAULT).unwrap().current.clone();
            let inputs = version.all_files().map(|(level, file)| (level, file.number.0)).collect::<Vec<_>>();
            let output = table(set.new_file_number().0, "a", "b", round * 10, 1);
            set.log_and_apply(&mut manifest, vec![edit(&[(1, output)], &inputs)])?;
            after(&set);
        }
    }
    Ok(())
}

fn recovered_tables(env: &Env) -> Result<String> {
    recover_with(env, vec![config("default"), config("one")]).map(|(set, _)| tables_of(&set))
}

#[test]
fn no_crash_loses_or_invents_a_commit() {
    let fs = MemFileSystem::new();
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs.open_directory(Path::new("/")).unwrap().sync().unwrap();
    fs.set_capturing(true);
    let mut states = vec![(fs.op_count(), None)];
    workload(&env_of(fs.clone()), |set| states.push((fs.op_count(), Some(tables_of(set))))).unwrap();
    let mut images = HashSet::new();
    for op in states[0].0..fs.op_count() {
        let before = fs.captured(op).unwrap();
        let acknowledged = states.iter().rposition(|(at, _)| *at <= op).unwrap();
        for policy in CrashPolicy::ALL {
            for seed in 0..if policy.is_random() { 60 } else { 1 } {
                let image = before.crash(policy, seed);
                if !images.insert((acknowledged, image.fingerprint())) {
                    continue;
                }
                let place = format!("operation {op}, {policy:?}, seed {seed}");
                let env = env_of(image);
                let found = match recovered_tables(&env) {
                    Ok(tables) => Some(tables),
                    Err(error) => {
                        // Only a creation that was not acknowledged may leave no database, and then
                        // it can be created.
                        assert!(acknowledged == 0 && error.is_path_not_found(), "{place}: {error}");
                        create(&env).unwrap();
                        None
                    }
                };
                let allowed = &states[acknowledged..states.len().min(acknowledged + 2)];
                assert!(allowed.iter().any(|(_, state)| *state == found), "{place}: {found:?}");
            }
        }
    }
    println!("IMAGES {}", images.len());
    assert!(images.len() > 100, "{}", images.len());
}

#[test]
fn after_any_failed_call_the_next_commit_goes_through() {
    for forever in [false, true] {
        for nth in 0.. {
            let inner = mem();
            let faults = Arc::new(FaultFileSystem::new(Arc::new(inner.clone())));
            let env = Env { fs: faults.clone(), clock: Arc::new(SystemClock::new()) };
            let rule = FaultRule::error(FaultError::NoSpace).on_changes().after(nth);
            let rule = faults.add(if forever { rule.forever() } else { rule });
            let mut last = None;
            let result = workload(&env, |set| last = Some(tables_of(set)));
            if rule.hits() == 0 {
                result.unwrap();
                break;
            }
            faults.clear();
            let good = env_of(inner);
            match (&last, recovered_tables(&good)) {
                (None, _) => {} // The creation failed.
                (Some(_), Ok(_)) => {}
                (Some(last), Err(error)) => panic!("call {nth} after {last}: {error}"),
            }
        }
    }
}

#[test]
fn failed_commits_keep_what_either_manifest_may_name() {
    for nth in 0..12 {
        for roll in [false, true] {
            let inner = mem();
            let faults = Arc::new(FaultFileSystem::new(Arc::new(inner.clone())));
            let env = Env { fs: faults.clone(), clock: Arc::new(SystemClock::new()) };
            let (mut set, mut manifest) = create(&env).unwrap();
            set.mark_file_number_used(FileNumber(50));
            set.log_and_apply(&mut manifest, vec![edit(&[(1, table(10, "a", "b", 1, 1))], &[])]).unwrap();
            let before = tables_of(&set);
            if roll {
                manifest.roll();
            }
            faults.add(FaultRule::error(FaultError::Io).on_changes().after(nth));
            let swap = edit(&[(1, table(11, "a", "b", 1, 1))], &[(1, 10)]);
            let result = set.log_and_apply(&mut manifest, vec![swap]);
            faults.clear();
            if result.is_ok() {
                continue; // Fewer calls than `nth`.
            }
            assert_eq!(tables_of(&set), before);
            // Whatever MANIFEST a restart would find, its files are live.
            let (restarted, _) = recover(&env_of(inner.fork())).unwrap();
            assert!(set.live_manifests().contains(&restarted.manifest_number()), "call {nth}");
            assert!(restarted.live_files().is_subset(&set.live_files()), "call {nth}");
            assert!(set.take_obsolete_files().is_empty());
            // The next commit starts from what is installed.
            set.log_and_apply(&mut manifest, vec![edit(&[(2, table(12, "a", "b", 1, 1))], &[])]).unwrap();
            assert_eq!(set.live_files(), HashSet::from([FileNumber(10), FileNumber(12)]), "call {nth}");
            assert_eq!(set.live_manifests().len(), 1);
            let (restarted, _) = recover(&env_of(inner)).unwrap();
            assert_eq!(describe(&restarted), describe(&set));
        }
    }
}

/// The MANIFEST of a few commits, and what it says after each of them: (size, tables).
fn small_manifest() -> (Vec<u8>, Vec<(usize, String)>) {
    let fs = mem();
    let env = env_of(fs.clone());
    let path = Path::new(DIR).join("MANIFEST-000001");
    let (mut set, mut manifest) = create(&env).unwrap();
    let mut states = vec![(fs.size(&path).unwrap() as usize, tables_of(&set))];
    for round in 0..4 {
        let file = table(10 + round, "a", "b", round * 10, round + 1);
        set.log_and_apply(&mut manifest, vec![edit(&[(0, file)], &[])]).unwrap();
        states.push((fs.size(&path).unwrap() as usize, tables_of(&set)));
    }
    (fs.read_all(&path).unwrap(), states)
}

fn read_back(bytes: Vec<u8>) -> Result<String> {
    let fs = mem();
    fs.write_all_synced(&Path::new(DIR).join("MANIFEST-000001"), &bytes).unwrap();
    fs.write_all_synced(&Path::new(DIR).join("CURRENT"), b"MANIFEST-000001\n").unwrap();
    recover(&env_of(fs)).map(|(set, _)| tables_of(&set))
}

#[test]
fn every_flipped_bit_of_a_manifest_is_an_error_that_names_file_and_offset() {
    let (bytes, _) = small_manifest();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let error = read_back(flipped).expect_err(&format!("byte {at} bit {bit}"));
            assert!(error.is_corruption(), "{error}");
            assert!(error.to_string().contains("/db/MANIFEST-000001 at "), "{error}");
        }
    }
}

#[test]
fn every_prefix_of_a_manifest_is_an_error_or_an_unsynced_tail() {
    let (bytes, states) = small_manifest();
    for cut in 0..bytes.len() {
        let whole = states.iter().rposition(|(size, _)| *size <= cut);
        match read_back(bytes[..cut].to_vec()) {
            // All that was durable when CURRENT named it must be there.
            Err(error) => assert!(cut < states[0].0 && error.is_corruption(), "{cut}: {error}"),
            // The residue: whether the last commits were ever synced cannot be known from the file alone.
            Ok(found) => assert_eq!(found, states[whole.unwrap()].1, "{cut}"),
        }
    }
}

/// It was durable as a whole before CURRENT named it.
#[test]
fn a_cut_in_what_a_manifest_begins_with_is_damage() {
    let fs = mem();
    let env = env_of(fs.clone());
    let (mut set, mut manifest) = create(&env).unwrap();
    set.log_and_apply(&mut manifest, vec![edit(&[(1, table(5, "a", "c", 1, 1))], &[])]).unwrap();
    let (mut set, mut manifest) = recover(&env).unwrap();
    set.log_and_apply(&mut manifest, vec![edit(&[(1, table(6, "d", "f", 3, 2))], &[])]).unwrap();
    let path = file_name::manifest(Path::new(DIR), set.manifest_number());
    let bytes = fs.read_all(&path).unwrap();
    for cut in 0..bytes.len() {
        fs.corrupt(&path, |file| *file = bytes[..cut].to_vec()).unwrap();
        let error = recover(&env).map(drop).expect_err("a part of it is gone");
        assert!(error.is_corruption(), "{cut}: {error}");
    }
    fs.corrupt(&path, |file| *file = bytes.clone()).unwrap();
    assert_eq!(tables_of(&recover(&env).unwrap().0), tables_of(&set));
}

#[test]
fn overwritten_bytes_are_an_error_unless_they_can_be_the_torn_last_commit() {
    let (bytes, states) = small_manifest();
    let last_start = states[states.len() - 2].0;
    for len in [2, 16, 64] {
        for fill in [0, 0xff, 0x55] {
            for at in 0..bytes.len() - len {
                let mut damaged = bytes.clone();
                damaged[at..at + len].fill(fill);
                match read_back(damaged.clone()) {
                    Ok(found) if damaged == bytes => assert_eq!(found, states[states.len() - 1].1),
                    Ok(found) => {
                        // The last commit says that those before it were durable, and it is hit itself.
                        assert!(at + len > last_start, "{len} at {at}");
                        let hit = damaged.iter().zip(&bytes).position(|(new, old)| new != old).unwrap();
                        let whole = states.iter().rposition(|(size, _)| *size <= hit).unwrap();
                        assert_eq!(found, states[whole].1);
                    }
                    Err(error) => assert!(error.to_string().contains("MANIFEST-000001"), "{error}"),
                }
            }
        }
    }
}

#[test]
fn every_change_to_the_manifest_in_force_is_found() {
    let fs = mem();
    let env = env_of(fs.clone());
    let (mut set, mut manifest) = create(&env).unwrap();
    set.log_and_apply(&mut manifest, vec![edit(&[(0, table(10, "a", "m", 1, 1))], &[])]).unwrap();
    manifest.verify_content().unwrap();
    let path = file_name::manifest(Path::new(DIR), manifest.witness().unwrap().number);
    let good = fs.read_all(&path).unwrap();
    let found = |bytes: &[u8]| {
        fs.write_all_synced(&path, bytes).unwrap();
        manifest.verify_content().unwrap_err()
    };
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(found(&bad).is_corruption(), "a bit at {at}");
        let error = found(&good[..at]);
        assert!(error.is_corruption() && error.message().contains("MANIFEST"), "cut at {at}: {error}");
    }
    // What stands behind it belongs to nobody, whatever it is.
    for behind in [&[0][..], &[0; 100], &good] {
        assert!(found(&[&good, behind].concat()).is_corruption(), "{} bytes behind", behind.len());
    }
    fs.write_all_synced(&path, &good).unwrap();
    manifest.verify_content().unwrap();
    fs.remove(&path).unwrap();
    assert!(!manifest.verify_content().unwrap_err().is_corruption(), "it is not there");
}

#[test]
fn a_witness_notices_an_older_manifest() {
    let fs = mem();
    let env = env_of(fs.clone());
    let (mut set, mut manifest) = create(&env).unwrap();
    let early = manifest.witness().unwrap();
    set.log_and_apply(&mut manifest, vec![edit(&[(0, table(10, "a", "b", 1, 1))], &[])]).unwrap();
    let late = manifest.witness().unwrap();
    let dir = Path::new(DIR);
    verify_manifest_witness(&fs, dir, &early).unwrap();
    verify_manifest_witness(&fs, dir, &late).unwrap();
    let path = dir.join("MANIFEST-000001");
    fs.corrupt(&path, |file| file.truncate(early.size as usize)).unwrap();
    recover(&env).unwrap(); // By itself it looks good.
    let error = verify_manifest_witness(&fs, dir, &late).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("MANIFEST-000001 at"), "{error}");
    manifest.roll();
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    verify_manifest_witness(&fs, dir, &late).unwrap();
    let newest = manifest.witness().unwrap();
    crate::set_current(&fs, dir, FileNumber(1)).unwrap();
    assert!(verify_manifest_witness(&fs, dir, &newest).unwrap_err().is_corruption());
}

#[test]
fn every_wrong_current_is_an_error() {
    let fs = mem();
    let env = env_of(fs.clone());
    create(&env).unwrap();
    let path = Path::new(DIR).join("CURRENT");
    let right = fs.read_all(&path).unwrap();
    assert_eq!(right, b"MANIFEST-000001\n");
    for at in 0..right.len() {
        for bit in 0..8 {
            fs.corrupt(&path, |file| {
                *file = right.clone();
                file[at] ^= 1 << bit;
            })
            .unwrap();
            let error = recover(&env).err().unwrap();
            assert!(error.is_corruption() && error.to_string().contains("CURRENT"), "{error}");
        }
    }
    for cut in 0..right.len() {
        fs.corrupt(&path, |file| *file = right[..cut].to_vec()).unwrap();
        assert!(recover(&env).err().unwrap().is_corruption());
    }
    fs.corrupt(&path, |file| *file = b"MANIFEST-000009\n".to_vec()).unwrap();
    let error = recover(&env).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains("MANIFEST-000009"), "{error}");
}

#[test]
fn the_identity_is_a_uuid_and_comes_back() {
    let fs = mem();
    let dir = Path::new(DIR);
    assert!(crate::read_identity(&fs, dir).unwrap_err().is_path_not_found());
    let id = crate::db_id_from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    assert_eq!(id, "01234567-89ab-4def-8123-456789abcdef");
    assert_eq!(crate::db_id_from_bits(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    crate::write_identity(&fs, dir, &id).unwrap();
    assert_eq!(crate::read_identity(&fs, dir).unwrap(), id);
    fs.corrupt(&dir.join("IDENTITY"), Vec::clear).unwrap();
    assert!(crate::read_identity(&fs, dir).unwrap_err().is_corruption());
}

// --- MANIFESTs that RocksDB and LevelDB wrote.

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// What a golden MANIFEST says is in a text file beside it; `REWRITE=1` rewrites it.
fn check_golden(name: &str, number: u64, column_families: Vec<ColumnFamilyConfig>) -> VersionSet {
    let os = ironstone_vfs::os::OsFileSystem::new();
    let bytes = os.read_all(&testdata(&format!("{name}-MANIFEST-{number:06}"))).unwrap();
    let fs = mem();
    fs.write_all_synced(&file_name::manifest(Path::new(DIR), FileNumber(number)), &bytes).unwrap();
    crate::set_current(&fs, Path::new(DIR), FileNumber(number)).unwrap();
    let env = env_of(fs.clone());
    let names: Vec<_> = column_families.iter().map(|config| config.name.clone()).collect();
    assert_eq!(list_column_families(&fs, Path::new(DIR)).unwrap(), names);
    let (mut set, mut manifest) = recover_with(&env, column_families.clone()).unwrap();
    assert_eq!(set.torn_tail(), None);

    let (text, expected) = (describe(&set), testdata(&format!("{name}.txt")));
    if std::env::var_os("REWRITE").is_some() {
        os.write_all_synced(&expected, text.as_bytes()).unwrap();
    }
    assert_eq!(text, String::from_utf8(os.read_all(&expected).unwrap()).unwrap());

    // Our own MANIFEST says the same.
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    let (again, _) = recover_with(&env, column_families).unwrap();
    assert_eq!(describe(&again), describe(&set));
    assert_eq!(tables_of(&again), text.split("next file").next().unwrap().trim_end());

    // Damage to RocksDB's: an error, or what a prefix of its edits says.
    let path = file_name::manifest(Path::new(DIR), FileNumber(number));
    crate::set_current(&fs, Path::new(DIR), FileNumber(number)).unwrap();
    let configs: Vec<_> = again
        .column_families()
        .map(|state| ColumnFamilyConfig {
            name: state.name.clone(),
            comparator: state.comparator.clone(),
            num_levels: 7,
        })
        .collect();
    for at in 0..bytes.len() {
        fs.corrupt(&path, |file| {
            file.clone_from(&bytes);
            file[at] ^= 1 << (at % 8);
        })
        .unwrap();
        match recover_with(&env, configs.clone()) {
            Ok((found, _)) => assert_eq!(describe(&found), text, "byte {at}"),
            Err(error) => {
                assert!(error.to_string().contains(&format!("MANIFEST-{number:06} at ")), "{error}")
            }
        }
    }
    set
}

#[test]
fn golden_rocksdb_11_manifest() {
    let reverse = ColumnFamilyConfig { comparator: UserComparator::ReverseBytewise, ..config("reverse") };
    check_golden("rocksdb-11.8.1", 5, vec![config("default"), config("blobs"), reverse]);
}

#[test]
fn golden_rocksdb_10_manifest() {
    check_golden("rocksdb-10.4", 5, vec![config("default"), config("second")]);
}

#[test]
fn golden_rocksdb_7_manifest() {
    let reverse = ColumnFamilyConfig { comparator: UserComparator::ReverseBytewise, ..config("reverse") };
    let set = check_golden("rocksdb-7.8.3", 5, vec![config("default"), config("blobs"), reverse]);
    assert!(
        set.column_families().all(|state| state.current.all_files().all(|(_, file)| file.epoch_number > 0))
    );
}

#[test]
fn golden_leveldb_manifest() {
    let set = check_golden("leveldb-1.23", 14, vec![config("default")]);
    let state = set.column_family(ColumnFamilyId::DEFAULT).unwrap();
    assert!(state.current.num_files() > 3);
    assert!(state.current.all_files().all(|(_, file)| file.largest_seqno == set.last_sequence()));
}

// --- RocksDB's own tool on our files.

fn ldb(arguments: &[&str]) -> Option<String> {
    let output = match std::process::Command::new("ldb").args(arguments).output() {
        Ok(output) => output,
        Err(_) => {
            println!("SKIP: no ldb in PATH");
            return None;
        }
    };
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "ldb {arguments:?}: {text}");
    Some(text)
}

#[test]
fn ldb_dumps_our_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::os();
    let (mut set, mut manifest) =
        VersionSet::create_new(&env, directory.path(), config("default"), None, ManifestOptions::default())
            .unwrap();
    let pending = set.prepare_create(&config("one"), FileNumber(7), Vec::new(), &manifest).unwrap();
    set.commit(&mut manifest, pending).unwrap();
    let mut in_one = edit(&[(3, table(44, "c", "d", 30, 4))], &[]);
    in_one.column_family = ColumnFamilyId(1);
    let mut full = FileMetaData::clone(&table(43, "p", "q", 20, 3));
    (full.unique_id, full.file_checksum) = ([1, 2], vec![1, 2, 3]);
    full.file_checksum_func_name = "FileChecksumCrc32c".to_owned();
    (full.tail_size, full.marked_for_compaction, full.temperature) = (100, true, 4);
    let in_default = edit(&[(0, table(42, "a", "b", 10, 2)), (1, Arc::new(full))], &[]);
    set.log_and_apply(&mut manifest, vec![in_default, in_one]).unwrap();
    let wal = WalAddition { number: FileNumber(9), synced_size: Some(10) };
    set.log_and_apply(
        &mut manifest,
        vec![VersionEdit { wal_additions: vec![wal], ..VersionEdit::default() }],
    )
    .unwrap();
    let delete = VersionEdit { wal_deletion: Some(FileNumber(8)), ..VersionEdit::default() };
    set.log_and_apply(&mut manifest, vec![delete]).unwrap();
    for roll in [false, true] {
        if roll {
            manifest.roll();
            set.log_and_apply(&mut manifest, vec![]).unwrap();
        }
        let path = file_name::manifest(directory.path(), set.manifest_number());
        let Some(text) = ldb(&["manifest_dump", &format!("--path={}", path.display())]) else { return };
        for expected in [
            "Column family \"default\"  (ID 0)",
            "Column family \"one\"  (ID 1)",
            " 42:1042[10 .. 11]['a' seq:11, type:1 .. 'b' seq:10, type:1]",
            " 43:1043[20 .. 21]['p' seq:21, type:1 .. 'q' seq:20, type:1]",
            " 44:1044[30 .. 31]['c' seq:31, type:1 .. 'd' seq:30, type:1]",
            "next_file_number",
            "last_sequence 31",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in {text}");
        }
    }
}

#[test]
fn rocksdb_opens_a_database_that_we_created_and_the_other_way_round() {
    let directory = tempfile::tempdir().unwrap();
    let db = format!("--db={}", directory.path().display());
    let env = Env::os();
    let (mut set, mut manifest) =
        VersionSet::create_new(&env, directory.path(), config("default"), None, ManifestOptions::default())
            .unwrap();
    manifest.roll();
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    if ldb(&[&db, "put", "key", "value"]).is_none() {
        return;
    }
    ldb(&[&db, "create_column_family", "second"]).unwrap();
    ldb(&[&db, "compact"]).unwrap();
    assert!(ldb(&[&db, "get", "key"]).unwrap().contains("value"));
    let (dir, two) = (directory.path(), vec![config("default"), config("second")]);
    assert_eq!(list_column_families(&*env.fs, dir).unwrap(), ["default", "second"]);
    let recover = RecoverOptions { column_families: two, allow_unlisted: false };
    let (mut set, mut manifest) =
        VersionSet::recover(&env, dir, recover, ManifestOptions::default()).unwrap();
    assert_eq!(
        set.column_family(ColumnFamilyId::DEFAULT).unwrap().current.num_files(),
        1,
        "ldb opens and flushes"
    );
    set.log_and_apply(&mut manifest, vec![]).unwrap();
    assert!(ldb(&[&db, "get", "key"]).unwrap().contains("value"));
    assert!(ldb(&[&db, "scan"]).unwrap().contains("key : value"));
}
