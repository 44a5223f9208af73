#![allow(clippy::disallowed_methods, missing_docs)]
use ironstone_base::sync::Arc;
use ironstone_base::*;
use ironstone_version::*;
use ironstone_vfs::{Env, FileSystem, mem::MemFileSystem};
use std::path::Path;
use std::time::Instant;
fn cf() -> ColumnFamilyConfig {
    ColumnFamilyConfig { name: "default".into(), comparator: UserComparator::Bytewise, num_levels: 7 }
}
fn file(number: u64, key: u64) -> Arc<FileMetaData> {
    let k = |n: u64, s| {
        InternalKeyBuf::new(format!("user-key-{n:012}").as_bytes(), SequenceNumber(s), ValueType::Value)
    };
    let mut f = FileMetaData::new(FileNumber(number), 64 << 20, k(key * 10, 5), k(key * 10 + 9, 5));
    f.largest_seqno = SequenceNumber(9);
    f.epoch_number = 1;
    f.unique_id = [number, 3];
    f.tail_size = 1000;
    f.file_creation_time = 1700000000;
    Arc::new(f)
}
fn main() {
    let fs = MemFileSystem::volatile();
    fs.create_dir_all(Path::new("/db")).unwrap();
    let env = Env { fs: Arc::new(fs), clock: Env::os().clock };
    let dir = Path::new("/db");
    let (mut set, mut manifest) =
        VersionSet::create_new(&env, dir, cf(), None, ManifestOptions::default()).unwrap();
    let n = 10_000u64;
    let t = Instant::now();
    for i in 0..n {
        let mut e = VersionEdit::default();
        e.add_file(6, file(10 + i, (i * 7919) % n));
        if i < n {
            set.log_and_apply(&mut manifest, vec![e]).unwrap();
        }
    }
    println!("{n} log_and_apply of one file each, growing: {:?}", t.elapsed());
    let recover = || {
        VersionSet::recover(
            &env,
            dir,
            RecoverOptions { column_families: vec![cf()], allow_unlisted: false },
            ManifestOptions::default(),
        )
        .unwrap()
    };
    let t = Instant::now();
    let (mut s2, mut m2) = recover();
    println!("recover from {n} edits: {:?}", t.elapsed());
    let t = Instant::now();
    s2.log_and_apply(&mut m2, vec![]).unwrap();
    println!("new MANIFEST with {n} files: {:?}", t.elapsed());
    let t = Instant::now();
    let (mut s3, mut m3) = recover();
    println!("recover from a snapshot of {n}: {:?}", t.elapsed());
    s3.log_and_apply(&mut m3, vec![]).unwrap();
    let t = Instant::now();
    for i in 0..1000u64 {
        let mut e = VersionEdit::default();
        let k = (i * 7919) % n;
        let old = s3.column_family(ColumnFamilyId::DEFAULT).unwrap().current.files(6)[k as usize].number;
        e.delete_file(6, old);
        e.add_file(6, file(100_000 + i, k));
        s3.log_and_apply(&mut m3, vec![e]).unwrap();
    }
    println!("replace one of {n} files, each: {:?}", t.elapsed() / 1000);
    let t = Instant::now();
    let mut e = VersionEdit::default();
    for f in s3.column_family(ColumnFamilyId::DEFAULT).unwrap().current.files(6) {
        e.delete_file(6, f.number);
    }
    s3.log_and_apply(&mut m3, vec![e]).unwrap();
    println!("delete {n} in one edit: {:?}", t.elapsed());
    let t = Instant::now();
    let v = s2.column_family(ColumnFamilyId::DEFAULT).unwrap().current.clone();
    let mut hits = 0;
    let keys: Vec<_> = (0..1_000_000u64)
        .map(|i| {
            InternalKeyBuf::for_seek(
                format!("user-key-{:012}", (i * 7919) % (n * 10)).as_bytes(),
                SequenceNumber::MAX,
            )
        })
        .collect();
    println!("keys {:?}", t.elapsed());
    let t = Instant::now();
    for k in &keys {
        hits += v.candidates(k.as_key()).count();
    }
    println!("candidates: {:?} each, {hits}", t.elapsed() / 1_000_000);
    // framing
    for len in [100usize, 1000, 100_000] {
        let data = vec![7u8; len];
        let mut out = Vec::with_capacity(64 << 20);
        let mut framer = ironstone_wal::LogFramer::new(FileNumber(1), true);
        let count = (256 << 20) / len;
        let t = Instant::now();
        for _ in 0..count {
            if out.len() > 1 << 20 {
                out.clear();
            }
            framer.frame(&[&data[..12], &data[12..]], &mut out);
        }
        let dt = t.elapsed();
        println!(
            "frame {len}: {:?} each, {:.2} GB/s",
            dt / count as u32,
            (count * len) as f64 / dt.as_nanos() as f64
        );
        let mut out = Vec::new();
        let mut framer = ironstone_wal::LogFramer::new(FileNumber(1), true);
        for i in 0..count as u64 / 4 {
            framer.frame(&[&i.to_le_bytes(), &data], &mut out);
        }
        let bytes = out.len();
        let t = Instant::now();
        let mut r = ironstone_wal::LogReader::from_bytes(out, FileNumber(1), Default::default());
        let mut c = 0;
        while let Ok(ironstone_wal::LogRead::Record { .. }) = r.next_record() {
            c += 1;
        }
        let dt = t.elapsed();
        println!("read {len}: {:?} each, {:.2} GB/s ({c})", dt / c, bytes as f64 / dt.as_nanos() as f64);
    }
}
