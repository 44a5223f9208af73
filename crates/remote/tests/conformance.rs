//! What every file system must do, with tables at a remote; and what only holds for those.

#[path = "common/places.rs"]
mod places;
#[path = "../../vfs/tests/suite/conformance.rs"]
mod suite;

use ironstone_base::checksum::crc32c;
use ironstone_base::{Code, SubCode};
use ironstone_remote::RemoteFileSystem;
use ironstone_remote::opendal::Operator;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use places::{directory, memory, open, small};
use std::path::{Path, PathBuf};
use suite::{check_all, pattern, sorted};

/// Runs `check` at remotes of all kinds, with and without a cache.
fn everywhere(check: impl Fn(&RemoteFileSystem, &Operator, &Path)) {
    for cache_bytes in [0, 8 << 10, 4 << 20] {
        for in_memory in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let remote = if in_memory { memory() } else { directory(&dir.path().join("remote")) };
            let mut options = small(dir.path());
            options.cache_bytes = cache_bytes;
            let fs = open(remote.clone(), options);
            let root = dir.path().join("data/db");
            fs.create_dir_all(&root).unwrap();
            check(&fs, &remote, &root);
        }
    }
}

fn write(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) {
    fs.write_all_synced(path, bytes).unwrap();
}

#[test]
fn remote_conforms() {
    everywhere(|fs, _, root| check_all(fs, root));
}

#[test]
fn tables_refuse_data_that_changed_on_its_way() {
    everywhere(|fs, _, root| {
        let path = root.join("000001.sst");
        let mut file = fs.create(&path, WriteOptions::default()).unwrap();
        file.append_checked(b"good", crc32c(b"good")).unwrap();
        let error = file.append_checked(b"baad", crc32c(b"good")).unwrap_err();
        assert!(error.is_corruption() && error.message().contains("000001.sst at 4"), "{error}");
        file.append_checked(b", too", crc32c(b", too")).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        assert_eq!(fs.read_all(&path).unwrap(), b"good, too");
    });
}

#[test]
fn conforms_where_all_files_are_local() {
    let dir = tempfile::tempdir().unwrap();
    let fs = open(memory(), small(dir.path()));
    let root = dir.path().join("elsewhere");
    fs.create_dir_all(&root).unwrap();
    check_all(&fs, &root);
    assert_eq!(
        fs.counters(),
        ironstone_remote::RemoteCounters::default(),
        "the remote was asked for nothing"
    );
}

#[test]
fn tables_are_objects_and_other_files_are_local() {
    everywhere(|fs, remote, root| {
        for name in ["000001.sst", "000002.ldb", "000003.log", "CURRENT", "MANIFEST-000004", "x.sst"] {
            write(fs, &root.join(name), name.as_bytes());
        }
        for (name, is_remote) in [
            ("000001.sst", true),
            ("000002.ldb", true),
            ("000003.log", false),
            ("CURRENT", false),
            ("x.sst", false),
        ] {
            assert_eq!(root.join(name).exists(), !is_remote, "{name}");
            assert_eq!(fs.uri(&root.join(name)).unwrap().is_some(), is_remote);
            assert!(fs.exists(&root.join(name)).unwrap());
        }
        let mut objects = objects(remote, "tests/tables/db/");
        objects.sort();
        assert_eq!(objects, ["tests/tables/db/000001.sst", "tests/tables/db/000002.ldb"]);
        let all = ["000001.sst", "000002.ldb", "000003.log", "CURRENT", "MANIFEST-000004", "x.sst"];
        assert_eq!(sorted(fs, root), all);
    });
}

fn objects(remote: &Operator, prefix: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listed = runtime.block_on(async { remote.list_with(prefix).recursive(true).await });
    let entries = listed.unwrap_or_default(); // A directory that is not there.
    entries.iter().filter(|entry| entry.metadata().is_file()).map(|entry| entry.path().to_owned()).collect()
}

#[test]
fn a_table_appears_when_it_is_synced() {
    everywhere(|fs, remote, root| {
        let path = root.join("000001.sst");
        let data = pattern(300_000, 1); // More than one part.
        let mut file = fs.create(&path, WriteOptions::default()).unwrap();
        file.append(&data).unwrap();
        file.flush().unwrap();
        assert!(!fs.exists(&path).unwrap());
        assert_eq!(sorted(fs, root), [""; 0]);
        file.sync().unwrap();
        assert_eq!(objects(remote, "tests/tables/db/"), ["tests/tables/db/000001.sst"]);
        assert_eq!(fs.size(&path).unwrap(), data.len() as u64);
        assert!(fs.read_all(&path).unwrap() == data);
        file.append(b"more").unwrap(); // All of it is uploaded again.
        drop(file);
        assert!(fs.read_all(&path).unwrap() == data);
        // What was never synced nor closed leaves nothing.
        let mut file = fs.create(&root.join("000002.sst"), WriteOptions::default()).unwrap();
        file.append(&data).unwrap();
        drop(file);
        assert_eq!(sorted(fs, root), ["000001.sst"]);
    });
}

#[test]
fn tables_can_be_appended_to_and_cut() {
    everywhere(|fs, _, root| {
        let path = root.join("000001.sst");
        let data = pattern(50_000, 1);
        write(fs, &path, &data);
        let uploads = fs.counters().uploads;
        let mut file = fs.append_to(&path, WriteOptions::default()).unwrap();
        assert_eq!(file.size(), 50_000);
        file.sync().unwrap(); // As after a link.
        file.close().unwrap();
        assert_eq!(fs.counters().uploads, uploads, "nothing was changed");
        let mut file = fs.append_to(&path, WriteOptions::default()).unwrap();
        file.append(b"tail").unwrap();
        assert_eq!(file.size(), 50_004);
        file.close().unwrap();
        assert!(fs.read_all(&path).unwrap() == [&data[..], b"tail"].concat());
        for (size, expected) in [(49_000, &data[..49_000]), (8192, &data[..8192]), (100, &data[..100])] {
            fs.truncate(&path, size).unwrap();
            assert!(fs.read_all(&path).unwrap() == expected, "{size}");
        }
        fs.truncate(&path, 10_000).unwrap();
        assert!(fs.read_all(&path).unwrap() == [&data[..100], &[0; 9_900]].concat());
        // A writer may cut what it has written, too.
        let mut file = fs.create(&path, WriteOptions::default()).unwrap();
        file.append(&data).unwrap();
        file.truncate(20_001).unwrap();
        file.append(b"!").unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        assert!(fs.read_all(&path).unwrap() == [&data[..20_001], b"!"].concat());
        fs.create(&path, WriteOptions::default()).unwrap().close().unwrap();
        assert_eq!(fs.size(&path).unwrap(), 0);
        let mut file = fs.append_to(&root.join("000009.sst"), WriteOptions::default()).unwrap();
        file.append(b"new").unwrap();
        file.close().unwrap();
        file.close().unwrap();
        assert!(file.append(b"late").is_err());
        assert!(file.sync().is_err());
        assert_eq!(fs.read_all(&root.join("000009.sst")).unwrap(), b"new");
    });
}

#[test]
fn tables_are_renamed_and_linked() {
    everywhere(|fs, _, root| {
        let path = |number: u64| root.join(format!("{number:06}.sst"));
        let data = [pattern(30_000, 1), pattern(20_000, 2)];
        write(fs, &path(1), &data[0]);
        write(fs, &path(2), &data[1]);
        fs.rename(&path(1), &path(1)).unwrap();
        let reader = fs.open_random(&path(1), OpenHints::default()).unwrap();
        let replaced = fs.open_random(&path(2), OpenHints::default()).unwrap();
        fs.rename(&path(1), &path(2)).unwrap();
        assert_eq!(sorted(fs, root), ["000002.sst"]);
        assert!(fs.read_all(&path(2)).unwrap() == data[0]);
        for (file, expected) in [(reader, &data[0]), (replaced, &data[1])] {
            let mut buf = vec![0; expected.len()];
            assert_eq!(file.read_at(0, &mut buf).unwrap(), buf.len());
            assert!(buf == *expected, "an open file is the same file under whatever name");
        }
        fs.link(&path(2), &path(3)).unwrap();
        assert_eq!(fs.link(&path(2), &path(3)).unwrap_err().code(), Code::IoError);
        fs.remove(&path(2)).unwrap();
        assert!(fs.read_all(&path(3)).unwrap() == data[0]);

        // To and from local files.
        let local = root.join("outside");
        assert_eq!(fs.link(&path(3), &local).unwrap_err().code(), Code::NotSupported);
        fs.rename(&path(3), &local).unwrap();
        assert!(local.exists() && !fs.exists(&path(3)).unwrap());
        let error = fs.link(&local, &path(4)).unwrap_err();
        assert_eq!(error.code(), Code::NotSupported);
        assert!(error.message().contains("tests/tables/db/000004.sst"), "{error}");
        fs.rename(&local, &path(4)).unwrap();
        assert!(!local.exists());
        assert!(fs.read_all(&path(4)).unwrap() == data[0]);
        assert_eq!(
            fs.reuse(&path(4), &path(5), WriteOptions::default()).err().unwrap().code(),
            Code::NotSupported
        );
    });
}

#[test]
fn directories_of_tables_are_renamed_and_removed() {
    everywhere(|fs, remote, root| {
        let (old, new) = (root.join("new.tmp"), root.join("new"));
        fs.create_dir_all(&old).unwrap();
        let data = pattern(30_000, 1);
        write(fs, &old.join("000001.sst"), &data);
        write(fs, &old.join("CURRENT"), b"x");
        assert!(fs.remove_dir(&old).is_err());
        fs.rename(&old, &new).unwrap();
        assert_eq!(sorted(fs, &new), ["000001.sst", "CURRENT"]);
        assert!(fs.read_all(&new.join("000001.sst")).unwrap() == data);
        assert_eq!(objects(remote, "tests/tables/db/new/"), ["tests/tables/db/new/000001.sst"]);
        assert_eq!(objects(remote, "tests/tables/db/new.tmp/"), [""; 0]);
        let away = root.parent().unwrap().parent().unwrap().join("away");
        assert_eq!(fs.rename(&new, &away).unwrap_err().code(), Code::NotSupported);
        fs.remove(&new.join("CURRENT")).unwrap();
        let error = fs.remove_dir(&new).unwrap_err();
        assert!(error.message().contains("not empty"), "{error}");
        fs.remove(&new.join("000001.sst")).unwrap();
        fs.remove_dir(&new).unwrap();
    });
}

#[test]
fn what_is_removed_while_it_is_open_goes_when_it_is_closed() {
    everywhere(|fs, remote, root| {
        let path = root.join("000001.sst");
        let data = [pattern(30_000, 1), pattern(30_000, 2)];
        write(fs, &path, &data[0]);
        let old = fs.open_random(&path, OpenHints::default()).unwrap();
        fs.remove(&path).unwrap();
        fs.remove(&path).unwrap();
        assert!(!fs.exists(&path).unwrap());
        assert_eq!(fs.size(&path).unwrap_err().sub_code(), SubCode::PathNotFound);
        assert_eq!(
            fs.open_random(&path, OpenHints::default()).err().unwrap().sub_code(),
            SubCode::PathNotFound
        );
        assert_eq!(sorted(fs, root), [""; 0]);
        write(fs, &path, &data[1]);
        let new = fs.open_random(&path, OpenHints::default()).unwrap();
        for (file, expected) in [(&old, &data[0]), (&new, &data[1])] {
            let mut buf = vec![0; 30_000];
            assert_eq!(file.read_at(0, &mut buf).unwrap(), 30_000);
            assert!(buf == *expected);
        }
        fs.remove(&path).unwrap();
        drop((old, new));
        write(fs, &path, b"third"); // Waits for the removal.
        assert_eq!(fs.read_all(&path).unwrap(), b"third");
        fs.remove(&path).unwrap();
        let start = ironstone_vfs::SystemClock::new();
        while !objects(remote, "tests/tables/").is_empty() {
            use ironstone_vfs::Clock;
            assert!(start.monotonic_nanos() < 30_000_000_000, "{:?}", objects(remote, "tests/tables/"));
            start.sleep(std::time::Duration::from_millis(1));
        }
    });
}

#[test]
fn tables_from_before_the_remote_are_found() {
    everywhere(|fs, _, root| {
        let (path, second) = (root.join("000001.sst"), root.join("000002.sst"));
        let local = ironstone_vfs::os::OsFileSystem::new();
        write(&local, &path, b"old");
        assert_eq!(sorted(fs, root), ["000001.sst"]);
        assert!(fs.exists(&path).unwrap());
        assert_eq!(fs.size(&path).unwrap(), 3);
        assert_eq!(fs.read_all(&path).unwrap(), b"old");
        fs.rename(&path, &second).unwrap();
        assert!(!path.exists() && !second.exists(), "a new name is a new place");
        assert_eq!(fs.read_all(&second).unwrap(), b"old");
        write(&local, &path, b"old");
        fs.remove(&path).unwrap();
        assert!(!path.exists());
    });
}

#[test]
fn errors_name_the_object() {
    everywhere(|fs, _, root| {
        let path: PathBuf = root.join("000001.sst");
        let error = fs.open_random(&path, OpenHints::default()).err().unwrap();
        assert_eq!((error.code(), error.sub_code()), (Code::IoError, SubCode::PathNotFound));
        for part in ["open", "db/000001.sst", "://", "tests/tables/db/000001.sst"] {
            assert!(error.message().contains(part), "{error}");
        }
    });
}
