//! Writes become visible: whoever sees a sequence number sees what it covers.

#[allow(dead_code)]
#[path = "../../crates/db/src/write/publish.rs"]
pub mod publish;

use ironstone_base::SequenceNumber;
use ironstone_base::sync::plain;
use publish::Publisher;
use std::sync::Arc;

/// Stands for what the writes put into memtables: byte `n` for the write of sequence number `n`.
struct Written {
    publisher: Publisher,
    bytes: [u8; 4],
}

impl Written {
    fn new() -> Arc<Self> {
        Arc::new(Self { publisher: Publisher::new(SequenceNumber(0)), bytes: [0; 4] })
    }
    fn write(&self, first: u64, last: u64) {
        for number in first..=last {
            plain::wrote(&self.bytes[number as usize]);
        }
        self.publisher.complete(SequenceNumber(first), SequenceNumber(last));
        assert!(self.publisher.visible().0 >= last, "a write is visible when it returns");
    }
    fn read_up_to(&self, visible: SequenceNumber) {
        for number in 1..=visible.0 {
            plain::reads(&self.bytes[number as usize]);
        }
    }
}

fn spawn(written: &Arc<Written>, work: impl FnOnce(&Written) + 'static) -> loom::thread::JoinHandle<()> {
    let written = Arc::clone(written);
    loom::thread::spawn(move || work(&written))
}

/// Two writers, in either order, and a reader.
pub fn writers_and_a_reader() {
    let written = Written::new();
    let one = spawn(&written, |written| written.write(1, 1));
    let other = spawn(&written, |written| written.write(2, 3));
    let visible = written.publisher.visible();
    assert!([0, 1, 3].contains(&visible.0), "{visible:?}: part of a batch");
    written.read_up_to(visible);
    assert!(written.publisher.visible() >= visible, "the visible number went back");
    one.join().expect("it does not panic");
    other.join().expect("it does not panic");
    assert_eq!(written.publisher.visible(), SequenceNumber(3));
}

/// A flush waits until the writes of its memtable are applied.
pub fn a_flush_waits() {
    let written = Written::new();
    let one = spawn(&written, |written| written.write(1, 1));
    let other = spawn(&written, |written| written.write(2, 2));
    written.publisher.wait_for(SequenceNumber(2));
    written.read_up_to(SequenceNumber(2));
    one.join().expect("it does not panic");
    other.join().expect("it does not panic");
}
