//! Memory for cached blocks, on huge pages where the system has them and the cache is large.
//!
//! Blocks are read in no order, so each read of one used to wait for the processor's table of pages too: a cache of 1 GiB
//! has 262,144 small pages and 512 huge ones. Blocks are copied in here when they enter the cache and live in extents of
//! whole huge pages; an allocator by two-level segregated fit (`rlsf`) divides these. It gets an extent page by page: it
//! writes to the end of what it has, and a huge page that is written to is there as a whole.
//!
//! # Safety argument
//! 1. An extent is mapped when a part needs it, and unmapped with the `BlockMemory`, which every `Piece` of it holds. The
//!    allocator has all of it up to `begun`.
//! 2. A piece belongs to one `BlockBytes` or arena from its allocation until that is dropped; a `BlockBytes` is written
//!    before it exists.
//! 3. A piece goes back to the part that it came from, with the alignment that it was allocated with.

use ironstone_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use ironstone_base::sync::{Arc, Mutex, MutexGuard};
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const HUGE_PAGE: usize = 2 << 20;
/// Larger extents are no better.
const MOST_EXTENT: usize = 64 << 20;
/// Blocks may begin anywhere; this costs the allocator nothing.
const BLOCK_ALIGN: usize = 16;
/// Threads that fill a cache wait for each other less in several parts, but each part has a huge page that is not full.
const MOST_PARTS: usize = 4;
/// Smaller caches stay on the heap. Others would leave it full of gaps: blocks that one thread reads are freed by others.
const FEWEST_BYTES: usize = 8 << 20;
/// In smaller caches the pages that are not full would weigh too much.
const FEWEST_ON_HUGE_PAGES: usize = 64 << 20;
const BYTES_PER_PART: usize = 128 << 20;
/// Powers of two that the allocator's pieces lie between: so many that it joins pages which follow each other.
const POWERS: usize = 59;
/// Size classes of the allocator between two powers of two.
const CLASSES: usize = 64;
/// What the allocator keeps in front of a piece.
const PIECE_HEADER: usize = 2 * size_of::<usize>();
/// The sizes of pieces, headers included, are multiples of this.
const GRANULE: usize = 4 * size_of::<usize>();

/// The memory of one cache's blocks.
pub(crate) struct BlockMemory {
    parts: Box<[Mutex<Part>]>,
    extent: usize,
    /// What all extents take together, and what is charged and lies elsewhere. Relaxed, as the others: a bound that several
    /// parts may pass by a page each.
    capacity: AtomicUsize,
    /// Bytes of all extents, as far as they are begun.
    begun: AtomicUsize,
    /// Bytes of all pieces, with their headers.
    used: AtomicUsize,
    /// How many of the parts have had as much as an extent in use.
    finished: AtomicUsize,
}

struct Part {
    free: rlsf::Tlsf<'static, u64, u64, POWERS, CLASSES>,
    extents: Vec<Extent>,
    on_huge_pages: bool,
}

// SAFETY: owns its extents; the pointers of the allocator point into them.
unsafe impl Send for Part {}

impl BlockMemory {
    /// For about so many bytes of blocks; nothing is taken from the system yet. `None` if there are too few to matter.
    pub(crate) fn new(capacity: usize) -> Option<Arc<Self>> {
        if capacity < FEWEST_BYTES {
            return None;
        }
        let parts = (capacity / BYTES_PER_PART).clamp(1, MOST_PARTS);
        let extent = (capacity / parts / 8).next_multiple_of(HUGE_PAGE).clamp(HUGE_PAGE, MOST_EXTENT);
        let on_huge_pages = capacity >= FEWEST_ON_HUGE_PAGES;
        let part = |_| Mutex::new(Part { free: rlsf::Tlsf::new(), extents: Vec::new(), on_huge_pages });
        Some(Arc::new(Self {
            parts: (0..parts).map(part).collect(),
            extent,
            capacity: AtomicUsize::new(capacity),
            begun: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        }))
    }

    /// Changes how much memory there may be in all. What is begun stays.
    pub(crate) fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Relaxed);
    }

    /// Whether more than a quarter of it is gaps, which evictions do not close.
    pub(crate) fn is_full_of_gaps(&self) -> bool {
        let begun = self.begun.load(Relaxed);
        begun.saturating_sub(self.used.load(Relaxed)) > begun / 4
    }

    /// Whether a block of so many bytes can be here at all.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        bytes > 0 && bytes <= self.extent / 2
    }

    /// A copy of `bytes`, if there is room; `which` picks the part, another one for what should not wait for this. `charged`
    /// is what the cache is charged, for pieces and all else.
    pub(crate) fn copy(self: &Arc<Self>, bytes: &[u8], which: u64, charged: usize) -> Option<BlockBytes> {
        let layout = Layout::from_size_align(bytes.len(), BLOCK_ALIGN).ok()?;
        Some(BlockBytes::of(self.allocate(layout, which, charged)?, bytes))
    }

    /// The same, and `None` where it would have to wait for somebody else: who gets new pages waits until the system has
    /// cleared a huge one.
    pub(crate) fn copy_at_once(
        self: &Arc<Self>,
        bytes: &[u8],
        which: u64,
        charged: usize,
    ) -> Option<BlockBytes> {
        let layout = Layout::from_size_align(bytes.len(), BLOCK_ALIGN).ok()?;
        Some(BlockBytes::of(self.allocate_by(Mutex::try_lock, layout, which, charged)?, bytes))
    }

    /// Room for `layout`, whatever is in it: in its part, in new pages of that, or in another part.
    pub(crate) fn allocate(self: &Arc<Self>, layout: Layout, which: u64, charged: usize) -> Option<Piece> {
        self.allocate_by(|part| Some(part.lock()), layout, which, charged)
    }

    fn allocate_by(
        self: &Arc<Self>,
        lock: impl Fn(&Mutex<Part>) -> Option<MutexGuard<'_, Part>>,
        layout: Layout,
        which: u64,
        charged: usize,
    ) -> Option<Piece> {
        if !self.takes(layout.size()) {
            return None;
        }
        let layout = fill_class(layout)?;
        let first = self.unfinished_part().unwrap_or(which as usize % self.parts.len());
        for number in (first..self.parts.len()).chain(0..first) {
            let mut part = lock(&self.parts[number])?;
            let pointer = match part.free.allocate(layout) {
                None if number == first => self.grow(&mut part, layout, charged),
                pointer => pointer,
            };
            if let Some(pointer) = pointer {
                self.used.fetch_add(layout.size() + PIECE_HEADER, Relaxed);
                return Some(Piece { pointer, memory: Arc::clone(self), layout, part: number as u8 });
            }
        }
        None
    }

    /// Room for `layout` in new pages of `part`, if there may be more.
    fn grow(&self, part: &mut Part, layout: Layout, charged: usize) -> Option<NonNull<u8>> {
        // The allocator looks for more than is asked for, by alignment and size class.
        let most = layout.size() + layout.size() / CLASSES + 2 * layout.align().max(GRANULE);
        let pages = most.next_multiple_of(HUGE_PAGE);
        if !self.may_grow(pages, charged) {
            return None;
        }
        part.grow(pages, self.extent)?;
        self.begun.fetch_add(pages, Relaxed);
        part.free.allocate(layout)
    }

    /// Where all new pieces go until each part has an extent's worth of them: every part that was begun ends in a page that is
    /// not full.
    fn unfinished_part(&self) -> Option<usize> {
        let finished = self.finished.load(Relaxed);
        if finished == self.parts.len() {
            return None;
        }
        if self.used.load(Relaxed) < (finished + 1) * self.extent {
            return Some(finished);
        }
        self.finished.store(finished + 1, Relaxed);
        (finished + 1 < self.parts.len()).then_some(finished + 1)
    }

    /// Pieces that no entry is charged for leave the others as much room as without them.
    fn may_grow(&self, bytes: usize, charged: usize) -> bool {
        let begun = self.begun.load(Relaxed) + bytes;
        (begun + charged).saturating_sub(self.used.load(Relaxed)) <= self.capacity.load(Relaxed)
    }
}

/// `layout`, made longer until it fills its size class. The allocator looks for free pieces in classes where all are long
/// enough: one that a block somewhere in the middle of its class has left would not be found for the next of that length.
fn fill_class(layout: Layout) -> Option<Layout> {
    let len = (layout.size() + PIECE_HEADER).next_multiple_of(GRANULE);
    let class = ((1 << len.ilog2()) / CLASSES).max(GRANULE);
    Layout::from_size_align(len.next_multiple_of(class) - PIECE_HEADER, layout.align()).ok()
}

impl Part {
    /// Gives the allocator so many more bytes in one piece, whole huge pages of an extent; of another one if no extent has as many left.
    fn grow(&mut self, bytes: usize, extent: usize) -> Option<()> {
        let has_room = |extent: &Extent| extent.len - extent.begun >= bytes;
        let at = match self.extents.iter().position(has_room) {
            Some(at) => at,
            None => {
                // The front of the first is on small pages: a cache that is hardly used takes little memory, and its first
                // blocks do not wait for a whole huge page.
                let on_small_pages = match (self.on_huge_pages, self.extents.is_empty()) {
                    (false, _) => extent,
                    (true, true) => HUGE_PAGE,
                    (true, false) => 0,
                };
                self.extents.push(Extent::map(extent, on_small_pages)?);
                self.extents.len() - 1
            }
        };
        let extent = &mut self.extents[at];
        // SAFETY: inside of the extent, which has room for so many bytes behind what is begun.
        let start = unsafe { extent.start.add(extent.begun) };
        let pages = NonNull::slice_from_raw_parts(start, bytes);
        // SAFETY: nobody else uses the extent, and it stays until the part goes (1); all of it before `start` is the
        // allocator's.
        unsafe {
            match extent.begun {
                0 => _ = self.free.insert_free_block_ptr(pages)?,
                _ => _ = self.free.append_free_block_ptr(pages),
            }
        }
        extent.begun += bytes;
        Some(())
    }
}

/// Owns a piece of an extent.
pub(crate) struct Piece {
    pub(crate) pointer: NonNull<u8>,
    memory: Arc<BlockMemory>,
    /// As it was allocated: filling its class.
    layout: Layout,
    part: u8,
}

// SAFETY: owns plain bytes, and what they are part of may be used from any thread.
unsafe impl Send for Piece {}

impl Drop for Piece {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.layout.size() + PIECE_HEADER, Relaxed);
        let mut part = self.memory.parts[usize::from(self.part)].lock();
        // SAFETY: allocated there with this alignment, and not used any more (2, 3).
        unsafe { part.free.deallocate(self.pointer, self.layout.align()) };
    }
}

/// The bytes of a block: in a [`BlockMemory`], or on the heap. There are many, so this is small.
///
/// # Safety argument
/// `home` tells what `owner` is. A part: an `Arc` of the memory made a pointer, and the bytes are a piece of that part,
/// allocated for a block of so many bytes ([`block_layout`]). [`HEAP`]: no pointer but the capacity of a vector, whose bytes
/// they are.
pub struct BlockBytes {
    pointer: NonNull<u8>,
    owner: *const BlockMemory,
    /// The length in the low [`LEN_BITS`], the home above them.
    len_and_home: u64,
}

/// More than a process can address.
const LEN_BITS: u32 = 48;
/// Where bytes are that are in no part.
const HEAP: u8 = u8::MAX;

// SAFETY: plain bytes of its own (2), and what owns them may be used from any thread.
unsafe impl Send for BlockBytes {}
// SAFETY: as above.
unsafe impl Sync for BlockBytes {}

/// What is allocated for a block of so many bytes.
fn block_layout(len: usize) -> Option<Layout> {
    fill_class(Layout::from_size_align(len, BLOCK_ALIGN).ok()?)
}

impl BlockBytes {
    fn new(pointer: NonNull<u8>, owner: *const BlockMemory, len: usize, home: u8) -> Self {
        Self { pointer, owner, len_and_home: len as u64 | u64::from(home) << LEN_BITS }
    }
    fn home(&self) -> u8 {
        (self.len_and_home >> LEN_BITS) as u8
    }

    /// `bytes` in `piece`, which was allocated for a block of that length.
    fn of(piece: Piece, bytes: &[u8]) -> Self {
        // SAFETY: the piece is that long, ours alone (2), and new.
        unsafe { piece.pointer.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        let piece = ManuallyDrop::new(piece);
        // SAFETY: taken out of what is not dropped.
        let memory = unsafe { std::ptr::read(&raw const piece.memory) };
        Self::new(piece.pointer, Arc::into_raw(memory), bytes.len(), piece.part)
    }

    /// What it owns: a piece or a vector.
    fn into_owned(self) -> Result<Piece, Vec<u8>> {
        let this = ManuallyDrop::new(self);
        let (pointer, len) = (this.pointer, this.len());
        match this.home() {
            // SAFETY: made from such a vector, which is not freed elsewhere.
            HEAP => Err(unsafe { Vec::from_raw_parts(pointer.as_ptr(), len, this.owner.addr()) }),
            part => {
                // SAFETY: made from an `Arc`, which is not dropped elsewhere.
                let memory = unsafe { Arc::from_raw(this.owner) };
                let layout = block_layout(len).expect("it was allocated");
                Ok(Piece { pointer, memory, layout, part })
            }
        }
    }

    /// About how many bytes it takes.
    pub fn memory_usage(&self) -> usize {
        match self.home() {
            HEAP => self.owner.addr(),
            _ => block_layout(self.len()).map_or(0, |layout| layout.size() + PIECE_HEADER),
        }
    }

    /// The bytes on the heap: as they are, or a copy.
    pub fn into_vec(self) -> Vec<u8> {
        if self.home() != HEAP {
            return self.to_vec();
        }
        self.into_owned().err().unwrap_or_default()
    }
}

impl From<Vec<u8>> for BlockBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        // SAFETY: the pointer of a vector is not null.
        let pointer = unsafe { NonNull::new_unchecked(bytes.as_mut_ptr()) };
        Self::new(pointer, std::ptr::without_provenance(bytes.capacity()), bytes.len(), HEAP)
    }
}

impl Deref for BlockBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let len = (self.len_and_home & ((1 << LEN_BITS) - 1)) as usize;
        // SAFETY: so many bytes, written before (2).
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), len) }
    }
}

impl DerefMut for BlockBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes, written before, and ours alone (2).
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len()) }
    }
}

impl Drop for BlockBytes {
    fn drop(&mut self) {
        let owned = Self { pointer: self.pointer, owner: self.owner, len_and_home: self.len_and_home };
        drop(owned.into_owned()); // What it owned goes once: `self` is not looked at again.
    }
}

/// Memory of the system.
struct Extent {
    start: NonNull<u8>,
    len: usize,
    /// So many bytes of it are the allocator's.
    begun: usize,
}

impl Extent {
    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn map(_len: usize, _on_small_pages: usize) -> Option<Self> {
        None // Nothing is gained: blocks stay where they are.
    }

    /// Maps `len` bytes, whole huge pages but for the first `on_small_pages`, which come as they are touched.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn map(len: usize, on_small_pages: usize) -> Option<Self> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh anonymous mapping replaces nothing.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len + HUGE_PAGE, access, flags) }.ok()?;
        let mapped = mapped.cast::<u8>();
        let before = mapped.align_offset(HUGE_PAGE);
        let start = mapped.wrapping_add(before);
        for (at, len) in [(mapped, before), (start.wrapping_add(len), HUGE_PAGE - before)] {
            if len > 0 {
                // SAFETY: cuts the mapping down to its aligned middle. Failing leaves unused pages.
                let _ = unsafe { munmap(at.cast(), len) };
            }
        }
        // SAFETY: advice about the pages of the mapping, which a kernel may refuse.
        let _ = unsafe {
            madvise(start.wrapping_add(on_small_pages).cast(), len - on_small_pages, Advice::LinuxHugepage)
        };
        Some(Self { start: NonNull::new(start)?, len, begun: 0 })
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: exactly the mapping made above, and nobody uses it any more (1). A failure would mean that it was none.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::sync::thread;

    /// Answers numbers below what it is asked for.
    fn random_below(mut state: u64) -> impl FnMut(usize) -> usize {
        move |bound| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        }
    }

    #[test]
    fn blocks_keep_their_bytes_while_others_come_and_go() {
        let memory = BlockMemory::new(300 << 20).unwrap();
        assert!(memory.parts.len() > 1);
        let threads: Vec<_> = (0..4u64)
            .map(|seed| {
                let memory = Arc::clone(&memory);
                thread::spawn_named("blocks", move || {
                    let mut random = random_below(seed + 1);
                    let mut held: Vec<(u8, usize, BlockBytes)> = Vec::new();
                    for round in 0..5000 {
                        let (byte, len) = (round as u8, random(9000) * [1, 1, 1, 200][random(4)]);
                        let bytes = vec![byte; len];
                        let bytes = memory.copy(&bytes, random(7) as u64, 0).unwrap_or_else(|| bytes.into());
                        assert!(bytes.memory_usage() >= len);
                        held.push((byte, len, bytes));
                        if held.len() > 200 {
                            let (byte, len, bytes) = held.swap_remove(random(200));
                            assert!(bytes.len() == len && bytes.iter().all(|&b| b == byte));
                            assert!(random(2) == 0 || bytes.into_vec() == vec![byte; len]);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Blocks of about a size come and go, as in a cache that is full: each takes the place of another.
    #[test]
    fn freed_blocks_leave_no_gaps_for_others_of_their_size() {
        let memory = BlockMemory::new(64 << 20).unwrap();
        let mut random = random_below(1);
        let (mut held, mut bytes, mut refused) = (Vec::new(), 0, 0);
        let most = 60 << 20;
        for _ in 0..60_000 {
            let len = 4000 + random(150);
            while bytes + len > most {
                let gone: BlockBytes = held.swap_remove(random(held.len()));
                bytes -= gone.len();
            }
            match memory.copy(&vec![7; len], 0, bytes) {
                Some(block) => {
                    bytes += len;
                    held.push(block);
                }
                None => refused += 1,
            }
        }
        let used = memory.used.load(Relaxed);
        assert!(
            refused == 0 && used >= bytes && used < bytes + bytes / 32,
            "{refused} refused, {used} of {bytes}"
        );
    }

    #[test]
    fn parts_that_may_grow_no_more_use_what_others_have_free() {
        let memory = BlockMemory::new(256 << 20).unwrap();
        assert_eq!((memory.parts.len(), memory.extent), (2, 16 << 20));
        memory.finished.store(2, Relaxed);
        memory.set_capacity(40 << 20); // Two extents and a half.
        let fill = |which| {
            let mut held = Vec::new();
            while let Some(bytes) = memory.copy(&[7; 4096], which, held.len() * 4096) {
                held.push(bytes);
            }
            held
        };
        let all = fill(0);
        assert_eq!(memory.begun.load(Relaxed), 40 << 20);
        let bytes = all.len() * 4096;
        assert!(bytes > 39 << 20 && bytes < 40 << 20, "{bytes}");
        assert!(memory.copy(&[7; 4096], 1, bytes).is_none() && !memory.is_full_of_gaps());
        drop(all);
        assert!(memory.is_full_of_gaps());
        assert_eq!(fill(1).len() * 4096, bytes);
        assert_eq!(memory.begun.load(Relaxed), 40 << 20);
        // What is charged and lies elsewhere takes from the room; what is here and not charged does not.
        memory.set_capacity(64 << 20);
        assert!(!memory.may_grow(HUGE_PAGE, 23 << 20) && memory.may_grow(HUGE_PAGE, 22 << 20));
        let _here = fill(0);
        assert!(!memory.may_grow(HUGE_PAGE, 63 << 20) && memory.may_grow(HUGE_PAGE, 50 << 20));
    }

    #[test]
    fn parts_are_filled_one_after_the_other_at_first() {
        let memory = BlockMemory::new(1 << 30).unwrap();
        assert_eq!((memory.parts.len(), memory.extent), (4, 32 << 20));
        let (block, mut held, mut bytes) = (vec![7; 64 << 10], Vec::new(), 0);
        for parts in 1..=5 {
            while bytes < (parts * 32 - 4) << 20 {
                held.push(memory.copy(&block, held.len() as u64, bytes).unwrap());
                bytes += block.len();
                let unused = memory.begun.load(Relaxed) - memory.used.load(Relaxed);
                assert!(unused <= parts * HUGE_PAGE, "{unused} with {parts} parts");
            }
            let begun = memory.parts.iter().filter(|part| !part.lock().extents.is_empty()).count();
            assert_eq!(begun, parts.min(4));
        }
    }

    /// It writes to the end of what it has, and a huge page that is written to is there as a whole.
    #[test]
    fn the_allocator_gets_no_more_pages_than_it_needs_in_a_row() {
        let memory = BlockMemory::new(1 << 30).unwrap();
        let piece = |bytes| memory.copy(&vec![7; bytes], 0, 0).unwrap();
        let begun = || memory.begun.load(Relaxed) / HUGE_PAGE;
        let small = piece(1000);
        assert_eq!(begun(), 1);
        let large = piece(9 << 20); // Not in what is left of the page.
        assert_eq!(begun(), 6);
        let larger = piece(memory.extent / 2);
        assert_eq!(begun(), 6 + 9);
        let another = piece(memory.extent / 2); // The first extent has no such piece left.
        assert_eq!(begun(), 6 + 9 + 9);
        assert_eq!(memory.parts[0].lock().extents.len(), 2);
        drop([small, large, larger, another]);
        let _all = piece(memory.extent / 2);
        assert_eq!(begun(), 24, "pages that follow each other are one piece again");
    }

    /// Else all threads that open tables would wait for the one whose filter needs a new page.
    #[test]
    fn who_can_go_elsewhere_does_not_wait_for_new_pages() {
        let memory = BlockMemory::new(64 << 20).unwrap();
        let growing = memory.parts[0].lock();
        assert!(memory.copy_at_once(b"filter", 1, 0).is_none());
        drop(growing);
        assert_eq!(*memory.copy_at_once(b"filter", 1, 0).unwrap(), *b"filter");
    }

    /// A heap that several threads use would be full of gaps.
    #[test]
    fn caches_of_a_few_megabytes_have_their_blocks_here_too() {
        let memory = BlockMemory::new(FEWEST_BYTES).unwrap();
        assert!(!memory.parts[0].lock().on_huge_pages);
        let held: Vec<_> =
            (0..1800).map_while(|at| memory.copy(&[7; 4096], at, at as usize * 4096)).collect();
        assert!(held.len() * 4096 > FEWEST_BYTES * 3 / 4, "{}", held.len());
        assert!(memory.begun.load(Relaxed) <= FEWEST_BYTES);
        assert!(BlockMemory::new(FEWEST_ON_HUGE_PAGES).unwrap().parts[0].lock().on_huge_pages);
    }

    #[test]
    fn bytes_outlive_the_cache_that_they_were_in() {
        assert!(BlockMemory::new(1 << 20).is_none());
        let bytes = BlockMemory::new(64 << 20).unwrap().copy(b"block", 3, 0).unwrap();
        assert_eq!(*bytes, *b"block");
        assert_eq!(*BlockBytes::from(Vec::new()), *b"");
    }
}
