//! Writers that want a sync: each is done once, durable and visible when it returns, whoever did it.

#[allow(dead_code)]
#[path = "../../crates/db/src/write/sync_group.rs"]
pub mod sync_group;

use crate::publishing::publish::Publisher;
use ironstone_base::SequenceNumber;
use ironstone_base::sync::plain;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sync_group::{Entered, SyncGroup};

/// The log has a byte for each write, whose number is its place.
struct Log {
    group: SyncGroup<u64, u64>,
    publisher: Publisher,
    /// What was put into the log, and what of that the device has. Loom does not look at these: the group orders them.
    written: AtomicU64,
    durable: AtomicU64,
    /// What stands for memtables.
    bytes: [u8; 4],
}

impl Log {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            group: SyncGroup::default(),
            publisher: Publisher::new(SequenceNumber(0)),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            bytes: [0; 4],
        })
    }
    fn apply(&self, number: u64) {
        assert!(self.durable.load(Ordering::SeqCst) >= number, "{number} is applied before it is durable");
        plain::wrote(&self.bytes[number as usize]);
        self.publisher.complete_later(SequenceNumber(number), SequenceNumber(number));
    }
    fn write(&self, defers: bool) {
        let number = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        match self.group.enter(number, || defers.then_some(number)) {
            Entered::Done(of) => assert_eq!(of, number, "another one's answer"),
            Entered::Durable => self.apply(number),
            Entered::Leads(lead) => {
                let synced = self.written.load(Ordering::SeqCst);
                self.durable.fetch_max(synced, Ordering::SeqCst);
                let covered = lead.end(synced);
                self.apply(number);
                covered.finish(|deferred| {
                    self.apply(deferred);
                    deferred
                });
            }
        }
        self.publisher.wait_for(SequenceNumber(number));
        plain::reads(&self.bytes[number as usize]);
    }
}

fn spawn(log: &Arc<Log>, defers: bool) -> loom::thread::JoinHandle<()> {
    let log = Arc::clone(log);
    loom::thread::spawn(move || log.write(defers))
}

/// Two writers whose writes whoever syncs applies.
pub fn writers_that_defer() {
    let log = Log::new();
    let other = spawn(&log, true);
    log.write(true);
    other.join().expect("it does not panic");
    assert_eq!(log.publisher.visible(), SequenceNumber(2));
}

/// Three, of which one applies its own.
pub fn one_does_not_defer() {
    let log = Log::new();
    let others = [spawn(&log, true), spawn(&log, false)];
    log.write(true);
    for other in others {
        other.join().expect("it does not panic");
    }
    assert_eq!(log.publisher.visible(), SequenceNumber(3));
}
