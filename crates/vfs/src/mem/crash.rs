//! What is left after a power loss.
//!
//! Every choice is drawn from the seed and the number of the file or directory that it is about, so
//! that one seed makes one image, whatever the order in which things are visited.

use super::image::Image;
use super::inode::{FileState, Pending};
use super::names::{DirId, Entries, EntryOp, Names};
use std::collections::{BTreeMap, BTreeSet};

/// What a power loss does to changes that were never synced. What was synced survives in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CrashPolicy {
    /// P0: nothing unsynced survives; nor does a name in a directory that was not synced.
    DropUnsynced,
    /// P1: everything survives that was handed to the system: the process was killed, the machine runs.
    KeepAll,
    /// P2: of each file a prefix of the unsynced writes, cut at any byte.
    FilePrefix,
    /// P3: of each file some 4 KiB pages, each as it was at any moment since the last sync.
    SomePages,
    /// P4: the same with sectors of 512 bytes, the last one torn at any byte.
    TornSectors,
    /// P5: the new size with little of the data: what is missing reads as zeros, as 0xFF, or as
    /// bytes of another file. What was overwritten in place may still hold the old bytes.
    SizeWithoutData,
    /// P6: of each directory some of the unsynced changes, in order; of each file all or nothing.
    SomeEntries,
    /// P7: each file and each directory as it was at a moment of its own.
    IndependentCuts,
}

impl CrashPolicy {
    /// All of them, P0 first.
    pub const ALL: [Self; 8] = [
        Self::DropUnsynced,
        Self::KeepAll,
        Self::FilePrefix,
        Self::SomePages,
        Self::TornSectors,
        Self::SizeWithoutData,
        Self::SomeEntries,
        Self::IndependentCuts,
    ];
    /// Whether the seed makes a difference.
    pub fn is_random(self) -> bool {
        !matches!(self, Self::DropUnsynced | Self::KeepAll)
    }
}

/// A small generator of reproducible numbers (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    #[cfg(test)]
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// A generator for one thing, independent of those for other things.
    fn for_thing(seed: u64, thing: u64) -> Self {
        let mut random = Self(seed ^ thing.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(random.next())
    }
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// A number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
    /// A number from 0 to `count`, the two ends as likely as all between them.
    fn cut(&mut self, count: usize) -> usize {
        match self.below(4) {
            0 => 0,
            1 => count,
            _ => self.below(count as u64 + 1) as usize,
        }
    }
}

/// One power loss.
pub(super) struct Crash {
    policy: CrashPolicy,
    seed: u64,
    /// Where the journal of names was cut, under the policies that keep the order of names.
    last_entry_op: u64,
    /// What P5 shows where data is missing, besides zeros and 0xFF.
    garbage: Image,
}

impl Crash {
    pub(super) fn new(policy: CrashPolicy, seed: u64, names: &Names, garbage: Image) -> Self {
        let ops: BTreeSet<u64> = names.dirs.values().flat_map(|dir| &dir.pending).map(|op| op.op).collect();
        let mut random = Random::for_thing(seed, u64::MAX);
        let kept = if random.coin() { ops.len() } else { random.below(ops.len() as u64 + 1) as usize };
        let last_entry_op = kept.checked_sub(1).and_then(|at| ops.iter().nth(at)).copied().unwrap_or(0);
        Self { policy, seed, last_entry_op, garbage }
    }

    /// The entries of every directory after the crash.
    pub(super) fn surviving_entries(&self, names: &Names) -> BTreeMap<DirId, Entries> {
        // First what each directory would do alone; a rename between two needs both.
        let mut kept: BTreeSet<(u64, DirId)> = BTreeSet::new();
        for (id, dir) in &names.dirs {
            let cut = Random::for_thing(self.seed, !*id).cut(dir.pending.len());
            let survives = |&(at, op): &(usize, &EntryOp)| self.entry_survives(*id, op, at < cut);
            kept.extend(dir.pending.iter().enumerate().filter(survives).map(|(_, op)| (op.op, *id)));
        }
        let whole = |id: DirId, op: &EntryOp| {
            kept.contains(&(op.op, id)) && op.partner.is_none_or(|partner| kept.contains(&(op.op, partner)))
        };
        let survivors = names.dirs.iter().map(|(id, dir)| {
            let mut entries = dir.durable.clone();
            dir.pending.iter().filter(|op| whole(*id, op)).for_each(|op| op.change.apply(&mut entries));
            (*id, entries)
        });
        survivors.collect()
    }

    fn entry_survives(&self, dir: DirId, op: &EntryOp, before_cut: bool) -> bool {
        match self.policy {
            CrashPolicy::DropUnsynced => false,
            CrashPolicy::KeepAll => true,
            CrashPolicy::FilePrefix
            | CrashPolicy::SomePages
            | CrashPolicy::TornSectors
            | CrashPolicy::SizeWithoutData => op.op <= self.last_entry_op,
            CrashPolicy::SomeEntries => Random::for_thing(self.seed ^ op.op, !dir).coin(),
            CrashPolicy::IndependentCuts => before_cut,
        }
    }

    /// The bytes of file `id` after the crash.
    pub(super) fn surviving_image(&self, id: u64, state: &FileState) -> Image {
        if self.policy == CrashPolicy::KeepAll {
            return state.current.clone();
        }
        if state.pending.is_empty() {
            return state.durable.clone();
        }
        let mut random = Random::for_thing(self.seed, id);
        let count = state.pending.len();
        match self.policy {
            CrashPolicy::DropUnsynced | CrashPolicy::KeepAll => state.durable.clone(),
            CrashPolicy::FilePrefix => byte_prefix(state, &mut random),
            CrashPolicy::SomePages => Pieces::new(4096, &mut random).assemble(state, random.cut(count)),
            CrashPolicy::TornSectors => {
                let pieces = Pieces::new(512, &mut random);
                let mut image = pieces.assemble(state, random.cut(count));
                tear_end(state, &mut image, &mut random);
                image
            }
            CrashPolicy::SizeWithoutData => self.size_without_data(state, &mut random),
            CrashPolicy::SomeEntries => prefix(state, if random.coin() { count } else { 0 }),
            CrashPolicy::IndependentCuts => prefix(state, random.cut(count)),
        }
    }

    fn size_without_data(&self, state: &FileState, random: &mut Random) -> Image {
        let pieces = Pieces { mostly_lost: random.coin(), ..Pieces::new(4096, random) };
        let mut image = pieces.assemble(state, state.pending.len());
        let fill = random.below(3);
        let Some(dirty) = dirty_ranges(state).into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
            return image;
        };
        // Old bytes stand where there were some; only what is new can be missing.
        let (mut at, end) = (dirty.0.max(state.durable.len()), dirty.1.min(image.len()));
        while at < end {
            let next = (at / 4096 + 1) * 4096;
            let len = next.min(end) - at;
            if pieces.cut(at / 4096, state.pending.len()) == 0 {
                match fill {
                    0 => image.zero(at, at + len),
                    1 => image.write(at, &vec![0xff; len as usize]),
                    _ => image.write(at, &self.garbage_at(at, len)),
                }
            }
            at += len;
        }
        image
    }

    /// Bytes of another file, or noise if that is too short.
    fn garbage_at(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut random = Random::for_thing(self.seed, offset);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        self.garbage.read(offset, &mut bytes);
        bytes
    }
}

/// The file after its first `count` unsynced writes.
fn prefix(state: &FileState, count: usize) -> Image {
    let mut image = state.durable.clone();
    state.pending[..count].iter().for_each(|pending| pending.apply(&mut image));
    image
}

/// The file after some of its unsynced writes and a part of the next one.
fn byte_prefix(state: &FileState, random: &mut Random) -> Image {
    let whole = random.cut(state.pending.len());
    let mut image = prefix(state, whole);
    if let Some(Pending::Write { offset, data }) = state.pending.get(whole) {
        image.write(*offset, &data[..random.cut(data.len())]);
    }
    image
}

/// A file in pieces that reached the device each at its own time.
struct Pieces {
    bytes: u64,
    seed: u64,
    mostly_lost: bool,
}

impl Pieces {
    fn new(bytes: u64, random: &mut Random) -> Self {
        Self { bytes, seed: random.next(), mostly_lost: false }
    }

    /// How many of the `count` unsynced writes reached piece number `piece`.
    fn cut(&self, piece: u64, count: usize) -> usize {
        let mut random = Random::for_thing(self.seed, piece);
        if self.mostly_lost && random.below(8) != 0 { 0 } else { random.cut(count) }
    }

    /// Every piece as it was when it was written back, under the size that the file had after
    /// `size_cut` writes.
    fn assemble(&self, state: &FileState, size_cut: usize) -> Image {
        let count = state.pending.len();
        let mut image = state.durable.clone();
        let (mut size, mut final_size) = (image.len(), image.len());
        for (at, pending) in state.pending.iter().enumerate() {
            let (start, end, data) = match pending {
                Pending::Write { offset, data } => (*offset, offset + data.len() as u64, Some(data)),
                Pending::SetLen(len) => (*len, size.max(*len), None),
            };
            size = if data.is_some() { size.max(end) } else { start };
            if at < size_cut {
                final_size = size;
            }
            let mut from = start;
            while from < end {
                let to = ((from / self.bytes + 1) * self.bytes).min(end);
                if at < self.cut(from / self.bytes, count) {
                    match data {
                        Some(data) => {
                            image.write(from, &data[(from - start) as usize..(to - start) as usize])
                        }
                        None => image.zero(from, to), // Cut off, and zero if it grows back.
                    }
                }
                from = to;
            }
        }
        image.set_len(final_size);
        image
    }
}

/// Puts the old bytes back behind a random byte of the last sector that was being written.
fn tear_end(state: &FileState, image: &mut Image, random: &mut Random) {
    let ends = dirty_ranges(state).into_iter().map(|(_, end)| end.min(image.len()));
    let Some(end) = ends.max().filter(|&end| end > 0) else { return };
    let sector = (end - 1) / 512 * 512;
    let torn = sector + random.below(end - sector + 1);
    let mut old = vec![0; (end - torn) as usize];
    state.durable.read(torn, &mut old);
    image.write(torn, &old);
}

fn dirty_ranges(state: &FileState) -> Vec<(u64, u64)> {
    let range = |pending: &Pending| match pending {
        Pending::Write { offset, data } => Some((*offset, offset + data.len() as u64)),
        Pending::SetLen(_) => None,
    };
    state.pending.iter().filter_map(range).collect()
}
