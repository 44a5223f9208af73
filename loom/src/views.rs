//! Reads and their views: what a read may see, its view has; and files go with their last view.

#[path = "../../crates/db/src/read/acquire.rs"]
mod acquire;
#[allow(dead_code)]
#[path = "../../crates/version/src/retired.rs"]
mod retired;

use crate::publishing::publish::Publisher;
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::sync::{Mutex, Swap, plain};
use ironstone_base::{FileNumber, SequenceNumber};
use std::sync::Arc;

/// Which writes of a key a view has, by their sequence numbers.
type View = Vec<u64>;

/// Byte `n` stands for what the write of sequence number `n` puts into memory.
type Memory = [u8; 4];

/// A database with so many column families, and one write in each, of number 1.
struct Db<const FAMILIES: usize> {
    publisher: Publisher,
    views: [Swap<View>; FAMILIES],
    memories: [Memory; FAMILIES],
    acknowledged: AtomicBool,
}

impl<const FAMILIES: usize> Db<FAMILIES> {
    fn new(view: &[u64]) -> Arc<Self> {
        Arc::new(Self {
            publisher: Publisher::new(SequenceNumber(1)),
            views: std::array::from_fn(|_| Swap::new(view.to_vec())),
            memories: [[0; 4]; FAMILIES],
            acknowledged: AtomicBool::new(false),
        })
    }
    /// Write 2: the same key in every family.
    fn overwrite(&self) {
        for memory in &self.memories {
            plain::wrote(&memory[2]);
        }
        self.publisher.complete(SequenceNumber(2), SequenceNumber(2));
        self.acknowledged.store(true, Ordering::Release);
    }
    fn install(&self, family: usize, view: &[u64]) {
        self.views[family].store(Arc::new(view.to_vec()));
    }
    /// The newest version of the key in `family` that a read at `at` finds in `view`.
    fn newest(&self, family: usize, view: &View, at: SequenceNumber) -> u64 {
        let found = view.iter().copied().filter(|version| *version <= at.0).max();
        let found = found.expect("the key was written before the read began");
        plain::reads(&self.memories[family][found as usize]);
        found
    }
    fn get(&self) -> u64 {
        let visible = || Ok(self.publisher.visible());
        let (view, at) = acquire::for_one_key(&self.views[0], visible).expect("it takes what is visible");
        self.newest(0, &view, at)
    }
    fn get_in_all(&self) -> Vec<u64> {
        let visible = || Ok(self.publisher.visible());
        let (views, at) =
            acquire::of_one_moment(self.views.iter(), visible).expect("it takes what is visible");
        views.iter().enumerate().map(|(family, view)| self.newest(family, view, at)).collect()
    }
}

fn spawn<T: Send + Sync + 'static>(
    shared: &Arc<T>,
    work: impl FnOnce(&T) + 'static,
) -> loom::thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    loom::thread::spawn(move || work(&shared))
}

/// A key is overwritten and flushed; no snapshot is known, so the flush leaves the older version out.
pub fn a_flush_drops_old_versions() {
    let db = Db::<1>::new(&[1, 2]);
    let writer = spawn(&db, |db| {
        db.overwrite();
        db.publisher.wait_for(SequenceNumber(2));
        db.install(0, &[2]);
    });
    let first = db.get();
    assert!(db.get() >= first, "a read went back");
    writer.join().expect("it does not panic");
    assert_eq!(db.get(), 2);
}

/// A memtable is switched, and the new one written to.
pub fn an_acknowledged_write_is_seen() {
    let db = Db::<1>::new(&[1]);
    let writer = spawn(&db, |db| {
        db.install(0, &[1, 2]);
        db.overwrite();
    });
    let acknowledged = db.acknowledged.load(Ordering::Acquire);
    let found = db.get();
    assert!(found == 2 || !acknowledged, "an acknowledged write is missing");
    writer.join().expect("it does not panic");
}

/// The memtables of two families are switched, and a batch goes to both of the new ones.
pub fn a_batch_over_two_families() {
    let db = Db::<2>::new(&[1]);
    let writer = spawn(&db, |db| {
        db.install(0, &[1, 2]);
        db.install(1, &[1, 2]);
        db.overwrite();
    });
    let found = db.get_in_all();
    assert_eq!(found[0], found[1], "half of a batch is seen");
    writer.join().expect("it does not panic");
    assert_eq!(db.get_in_all(), [2, 2]);
}

struct File {
    number: FileNumber,
    removed: AtomicBool,
}

impl File {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number: FileNumber(number), removed: AtomicBool::new(false) })
    }
}

struct Files {
    views: Swap<Arc<File>>,
    retired: Mutex<Vec<Arc<File>>>,
}

impl Files {
    /// Removes what nobody needs any more, as the background thread does when a view was let go of.
    fn clean(&self) {
        let mut retired = self.retired.lock();
        let current = self.views.load().number;
        let candidates = std::mem::take(&mut *retired);
        let (obsolete, held) =
            retired::split_obsolete(candidates, |file| file.number, |number| number == current);
        *retired = held;
        obsolete.iter().for_each(|file| file.removed.store(true, Ordering::Release));
    }
}

/// A compaction replaces a file while two readers come and go.
pub fn files_go_with_their_last_view() {
    let old = File::new(1);
    let watched = Arc::downgrade(&old);
    let files = Arc::new(Files { views: Swap::new(old), retired: Mutex::new(Vec::new()) });
    let read = |files: &Files| {
        let view = files.views.load_full();
        assert!(!view.removed.load(Ordering::Acquire), "a file went while somebody reads it");
        assert!(!view.removed.load(Ordering::Acquire), "a file went while somebody reads it");
        drop(view);
        files.clean();
    };
    let reader = spawn(&files, read);
    let compaction = spawn(&files, |files| {
        files.retired.lock().push(Arc::clone(&*files.views.load_full()));
        files.views.store(Arc::new(File::new(2)));
        files.clean();
    });
    read(&files);
    reader.join().expect("it does not panic");
    compaction.join().expect("it does not panic");
    assert!(watched.upgrade().is_none(), "a file that nobody needs stays");
    assert_eq!(files.views.load().number, FileNumber(2));
}
