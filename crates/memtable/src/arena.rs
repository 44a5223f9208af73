//! The memory of one memtable: handed out piece by piece, freed at once.
//!
//! ```text
//! cursor   block number << 32 | offset of the next free byte
//! block    offsets BLOCK_SPAN - size .. BLOCK_SPAN: small blocks start high, so that all blocks
//!          end at the same offset and an allocation is one fetch_add
//! ```
//! The first block is small; the next ones are an eighth of those before together, up to [`SMALL_ARENA`], then each is twice
//! as large as the one before, up to [`BLOCK_SPAN`]: an idle memtable costs kilobytes, and many small ones little more than
//! what is in them. A piece of more than [`LARGE`] bytes gets a
//! block of its own.
//!
//! Blocks of full size and those of large pieces come from a [`BlockPool`] and go back there: memory that was never touched is
//! dear (the system clears it, and under a hypervisor the host finds it first). Pages of a full block that is
//! not from there are asked for [`STEP`] bytes at a time, which costs less than meeting them one by one, those of a large piece all at once.
//!
//! # Safety argument
//! 1. The offset in `cursor` only grows while its block number stays, and a block number is used
//!    once. So no two callers get the same byte.
//! 2. Blocks and block tables are freed, or go back to the pool, by `drop` only. So a piece lives as
//!    long as the arena, and a pooled block has no other user.
//! 3. A pointer in the block table has the provenance of its block (`wrapping_*` keep it), and
//!    every offset handed out lies inside that block.
//! 4. A block number gets into `cursor` (Release) after its table entry is written, and whoever
//!    uses the number took it from `cursor` (Acquire) or was handed it by one who did.

use crate::prefetch::{CACHE_LINE, prefetch_lines};
use ironstone_base::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use ironstone_base::sync::{Arc, CachePadded, Mutex};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::RangeInclusive;
use std::ptr::NonNull;

/// The unit of allocation, and the alignment of every piece.
pub(crate) const GRANULE: usize = 8;
const BLOCK_SPAN: usize = if cfg!(miri) { 64 << 10 } else { 2 << 20 };
const FIRST_BLOCK: usize = if cfg!(miri) { 1 << 10 } else { 4 << 10 };
/// Pieces up to this size are claimed with a bare fetch_add. Failed claims pile up in the low half
/// of the cursor until a new block resets it: 2^32 / 16 KiB of them, one per thread, never come.
const SMALL: usize = 16 << 10;
const LARGE: usize = BLOCK_SPAN / 2;
/// The blocks of pieces larger than that are multiples of this, so that they fit others.
const LARGE_UNIT: usize = BLOCK_SPAN / 32;
/// Blocks of so many bytes go to the pool.
const LEAST_POOLED: usize = LARGE + LARGE_UNIT;
const FIRST_TABLE: usize = 32;
/// Blocks of so many bytes are mappings of their own: many databases with small memtables give back what they flush.
#[cfg(all(unix, not(miri)))]
const LEAST_MAPPING: usize = 16 << 10;
/// Pages of a new block of full size are asked for in such steps, by the piece that reaches one first: larger ones make
/// that piece wait longer (400 us for these), smaller ones more of the pieces.
const STEP: usize = BLOCK_SPAN / 2;
/// So many cache lines at most are fetched ahead. Writing more than these takes long enough for the processor to do so itself.
const MOST_AHEAD: usize = 16;
/// Up to so many bytes an arena grows by eighths.
const SMALL_ARENA: usize = BLOCK_SPAN / 2;

/// A piece of the arena, not initialized.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// Its first byte.
    pub pointer: NonNull<u8>,
    at: u64,
}

/// Where a piece starts, in 31 bits: block number, then granule in the block. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PieceIndex(pub u32);

impl PieceIndex {
    /// The place `bytes` further on, in the same piece.
    pub fn plus(self, bytes: usize) -> Self {
        Self(self.0 + (bytes / GRANULE) as u32)
    }
}

/// Full-size blocks that a [`PieceIndex`] can name: 8192, which hold 8 GiB at the very least.
const NAMED_BLOCKS: usize = 1 << (31 - GRANULE_BITS);
const GRANULE_BITS: u32 = (BLOCK_SPAN / GRANULE).trailing_zeros();

impl Piece {
    /// A short name for the piece.
    ///
    /// # Panics
    /// In an arena of more than 8 GiB.
    #[inline]
    pub fn index(self) -> PieceIndex {
        let (block, offset) = (block_of(self.at), offset_of(self.at));
        assert!(block < NAMED_BLOCKS, "a memtable of more than 8 GiB");
        PieceIndex(((block << GRANULE_BITS) | (offset / GRANULE)) as u32)
    }
}

pub(crate) struct Arena {
    /// Apart from what readers look at, since each write changes it.
    cursor: CachePadded<AtomicU64>,
    /// First slot of the newest block table. Grows by replacement; old tables stay readable.
    table: AtomicPtr<AtomicPtr<u8>>,
    /// Bytes used, less the offset in `cursor`. Changes when a block is left.
    used_beyond_offset: AtomicI64,
    /// The number of the newest block of full size whose pages were never touched. Relaxed: only where to ask for pages.
    untouched: AtomicUsize,
    huge_pages: bool,
    blocks: Mutex<Blocks>,
}

/// Blocks of memtables that are gone, for those to come. Shared by the memtables of a database.
///
/// It keeps as much as the largest of its memtables is meant to take, and tells the system that it
/// may have the pages if it needs them.
#[derive(Default)]
pub struct BlockPool {
    blocks: Mutex<PooledBlocks>,
    /// How many bytes it keeps. Relaxed: only a bound.
    limit: AtomicUsize,
}

#[derive(Default)]
struct PooledBlocks {
    /// Those that came back last are at the end.
    free: Vec<Block>,
    /// How many bytes these have.
    bytes: usize,
    /// How many arenas have.
    lent: usize,
    /// Whether none is worth keeping once no arena has any.
    unwanted: bool,
}

impl PooledBlocks {
    /// What goes back to the system: what there is no room for, or all if none is worth keeping.
    fn take_unwanted(&mut self, limit: usize) -> Vec<Block> {
        let limit = if self.unwanted && self.lent == 0 { 0 } else { limit };
        let mut unwanted = 0;
        while self.bytes > limit {
            self.bytes -= self.free[unwanted].size;
            unwanted += 1;
        }
        self.free.drain(..unwanted).collect()
    }
}

impl std::fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let blocks = self.blocks.lock();
        write!(f, "BlockPool({} free blocks, {} lent)", blocks.free.len(), blocks.lent)
    }
}

impl BlockPool {
    /// An empty pool.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
    /// Memtables of this size will come and go.
    pub(crate) fn make_room_for(&self, write_buffer_size: usize) {
        self.limit.fetch_max(write_buffer_size.next_multiple_of(BLOCK_SPAN), Relaxed);
    }
    /// Gives all blocks back to the system as soon as no memtable has one, unless one takes another before.
    pub fn release_when_idle(&self) {
        self.change(|blocks| blocks.unwanted = true);
    }
    /// Changes what there is, and gives back what nobody wants then: not behind the lock.
    fn change(&self, change: impl FnOnce(&mut PooledBlocks)) {
        let mut blocks = self.blocks.lock();
        change(&mut blocks);
        let unwanted = blocks.take_unwanted(self.limit.load(Relaxed));
        drop(blocks);
        drop(unwanted);
    }
    /// A free block of one of these sizes, if there is one; if not, the caller makes one.
    fn take(&self, sizes: RangeInclusive<usize>) -> Option<Block> {
        let mut blocks = self.blocks.lock();
        blocks.lent += 1;
        blocks.unwanted = false;
        let at = blocks.free.iter().rposition(|block| sizes.contains(&block.size))?;
        let block = blocks.free.remove(at);
        blocks.bytes -= block.size;
        Some(block)
    }
    fn give(&self, given: impl Iterator<Item = Block>) {
        for block in given.filter(Block::is_pooled) {
            block.let_go();
            self.change(|blocks| {
                blocks.lent -= 1;
                blocks.bytes += block.size;
                blocks.free.push(block);
            });
        }
    }
}

struct Blocks {
    owned: Vec<Block>,
    tables: Vec<NonNull<[AtomicPtr<u8>]>>,
    next_size: usize,
    /// Bytes of the blocks that were not made for one piece.
    total: usize,
    pool: Arc<BlockPool>,
}

// SAFETY: the pointers lead to tables of atomics that this value frees (2).
unsafe impl Send for Blocks {}

const fn cursor_at(number: usize, offset: usize) -> u64 {
    (number as u64) << 32 | offset as u64
}
const fn block_of(cursor: u64) -> usize {
    (cursor >> 32) as usize
}
const fn offset_of(cursor: u64) -> usize {
    cursor as u32 as usize
}

impl Arena {
    /// An arena with its first block. `huge_pages` asks the system to back full-size blocks with
    /// huge pages. Full-size blocks come from `pool` and go back there.
    pub fn new(huge_pages: bool, pool: Arc<BlockPool>) -> Self {
        let mut blocks =
            Blocks { owned: Vec::new(), tables: Vec::new(), next_size: FIRST_BLOCK, total: 0, pool };
        let table = AtomicPtr::new(blocks.grow_table(FIRST_TABLE));
        let arena = Self {
            cursor: AtomicU64::new(0).into(),
            table,
            used_beyond_offset: AtomicI64::new(0),
            untouched: AtomicUsize::new(usize::MAX),
            huge_pages,
            blocks: Mutex::new(blocks),
        };
        arena.start_block(&mut arena.blocks.lock(), 0);
        arena
    }

    /// `size` bytes, aligned to [`GRANULE`].
    #[inline]
    pub fn allocate(&self, size: usize) -> Piece {
        let size = size.next_multiple_of(GRANULE);
        if size <= SMALL {
            // Acquire: pairs with the swap that introduced the block (4).
            let claim = self.cursor.fetch_add(size as u64, Acquire);
            if offset_of(claim) + size <= BLOCK_SPAN {
                return self.claimed(claim, size);
            }
        }
        self.allocate_slow(size)
    }

    /// The same. The processor fetches what follows meanwhile, for another piece of this size.
    #[inline]
    pub fn allocate_one_of_many(&self, size: usize) -> Piece {
        let piece = self.allocate(size);
        let next = piece.pointer.as_ptr().wrapping_add(size);
        prefetch_lines(next, size.div_ceil(CACHE_LINE).min(MOST_AHEAD));
        piece
    }

    #[cold]
    fn allocate_slow(&self, size: usize) -> Piece {
        let mut blocks = self.blocks.lock();
        if size > LARGE {
            let number = self.own_block(&mut blocks, size.next_multiple_of(LARGE_UNIT), 0);
            self.used_beyond_offset.fetch_add(size as i64, Relaxed);
            return self.piece(cursor_at(number, 0));
        }
        let fits = |cursor: u64| (offset_of(cursor) + size <= BLOCK_SPAN).then(|| cursor + size as u64);
        match self.cursor.fetch_update(AcqRel, Acquire, fits) {
            Ok(claim) => self.claimed(claim, size),
            Err(_) => self.piece(self.start_block(&mut blocks, size)),
        }
    }

    /// The piece of `size` bytes at `claim`. Whoever comes to a step of an untouched block asks for its pages.
    #[inline]
    fn claimed(&self, claim: u64, size: usize) -> Piece {
        let (step, last_step) = (offset_of(claim) / STEP, (offset_of(claim) + size) / STEP);
        if step != last_step {
            self.reach(block_of(claim), (step + 1) * STEP, (last_step + 1) * STEP);
        }
        self.piece(claim)
    }

    /// Asks for the pages at the offsets from `start` to `end` of `block`, if none of them was touched.
    #[cold]
    fn reach(&self, block: usize, start: usize, end: usize) {
        let end = end.min(BLOCK_SPAN);
        if self.untouched.load(Relaxed) == block && start < end {
            // SAFETY: a full block, or it would not be untouched, has all offsets below its span (3).
            populate(unsafe { self.address(block, start) }, end - start);
        }
    }

    /// Moves `cursor` into a new block, behind `reserved` bytes. Answers where these are.
    fn start_block(&self, blocks: &mut Blocks, reserved: usize) -> u64 {
        let size = blocks.next_size.max(reserved.next_power_of_two());
        blocks.total += size;
        blocks.next_size = match blocks.total {
            ..SMALL_ARENA => (blocks.total / 8).next_multiple_of(FIRST_BLOCK),
            _ => (size * 2).min(BLOCK_SPAN),
        };
        let start = BLOCK_SPAN - size;
        let number = self.own_block(blocks, size, start);
        self.reach(number, start, (start + reserved) / STEP * STEP + STEP);
        // Release publishes the table entry (4). A claim on the block left behind either succeeded
        // before this swap, or fails and comes back for a piece of the new block.
        let left = self.cursor.swap(cursor_at(number, start + reserved), AcqRel);
        let offset_left = offset_of(left).min(BLOCK_SPAN);
        self.used_beyond_offset.fetch_add(offset_left as i64 - start as i64, Relaxed);
        cursor_at(number, start)
    }

    /// Takes a block from the system and gives it a number; its first byte has offset `start`.
    fn own_block(&self, blocks: &mut Blocks, size: usize, start: usize) -> usize {
        let number = blocks.owned.len();
        let pooled = match size {
            BLOCK_SPAN => blocks.pool.take(size..=size),
            LEAST_POOLED.. => blocks.pool.take(size..=size + size / 4),
            _ => None,
        };
        let block = pooled.unwrap_or_else(|| {
            let block = Block::new(size, self.huge_pages);
            match size {
                BLOCK_SPAN => self.untouched.store(number, Relaxed),
                LEAST_POOLED.. => populate(block.pointer, size), // For one piece, which takes all of it.
                _ => {}
            }
            block
        });
        if number == blocks.table().len() {
            self.table.store(blocks.grow_table(number * 2), Release);
        }
        blocks.table()[number].store(block.pointer.as_ptr().wrapping_sub(start), Release);
        blocks.owned.push(block);
        number
    }

    #[inline]
    fn piece(&self, at: u64) -> Piece {
        // SAFETY: callers have just claimed `at`.
        Piece { pointer: unsafe { self.address(block_of(at), offset_of(at)) }, at }
    }

    /// Where the piece named `index` starts.
    ///
    /// # Safety
    /// `index` is of a piece of this arena.
    #[inline]
    pub unsafe fn locate(&self, index: PieceIndex) -> NonNull<u8> {
        let index = index.0 as usize;
        // SAFETY: handed out (by the caller's word).
        unsafe { self.address(index >> GRANULE_BITS, (index & ((1 << GRANULE_BITS) - 1)) * GRANULE) }
    }

    /// # Safety
    /// A piece at this place was handed out.
    #[inline]
    unsafe fn address(&self, block: usize, offset: usize) -> NonNull<u8> {
        let table = self.table.load(Acquire);
        // SAFETY: every block number that was handed out has a slot (4), and tables live (2).
        let base = unsafe { &*table.add(block) }.load(Relaxed);
        // SAFETY: the address is inside a block (3), so it is not null.
        unsafe { NonNull::new_unchecked(base.wrapping_add(offset)) }
    }

    /// Bytes handed out. An estimate while others allocate: it may lag behind by a block.
    pub fn memory_usage(&self) -> usize {
        let offset = offset_of(self.cursor.load(Relaxed)).min(BLOCK_SPAN);
        (offset as i64 + self.used_beyond_offset.load(Relaxed)).max(0) as usize
    }
}

impl Blocks {
    /// Replaces the block table by a copy with room for `len` blocks. Answers its first slot.
    fn grow_table(&mut self, len: usize) -> *mut AtomicPtr<u8> {
        let old = if self.tables.is_empty() { &[] } else { self.table() };
        let mut slots: Vec<_> = old.iter().map(|slot| AtomicPtr::new(slot.load(Relaxed))).collect();
        slots.resize_with(len, AtomicPtr::default);
        let slots = NonNull::from(Box::leak(slots.into_boxed_slice()));
        self.tables.push(slots);
        slots.as_ptr().cast()
    }
    fn table(&self) -> &[AtomicPtr<u8>] {
        let newest = self.tables.last().expect("an arena has a block table");
        // SAFETY: tables live as long as this value does (2).
        unsafe { newest.as_ref() }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for table in self.tables.drain(..) {
            // SAFETY: leaked from a box above, and nobody reads it any more (2).
            drop(unsafe { Box::from_raw(table.as_ptr()) });
        }
        self.pool.give(self.owned.drain(..));
    }
}

/// Asks the system for `len` bytes of pages at once, before they are touched. A system may not know how, or have none: then
/// touching them says so.
fn populate(pointer: NonNull<u8>, len: usize) {
    #[cfg(test)]
    tests::POPULATED.set(tests::POPULATED.get() + len);
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let advice = rustix::mm::Advice::LinuxPopulateWrite;
        // SAFETY: changes no byte, and pages that are not there are made as if they had been written.
        let _ = unsafe { rustix::mm::madvise(pointer.as_ptr().cast(), len, advice) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (pointer, len);
}

/// Memory from the system, given back on drop.
struct Block {
    pointer: NonNull<u8>,
    size: usize,
    origin: Origin,
}

enum Origin {
    Heap,
    #[cfg(all(unix, not(miri)))]
    Mapping,
}

// SAFETY: owns plain bytes.
unsafe impl Send for Block {}

impl Block {
    fn new(size: usize, huge_pages: bool) -> Self {
        #[cfg(test)]
        tests::HELD.set(tests::HELD.get() + size as i64);
        if let Some(block) = Self::map(size, huge_pages) {
            return block;
        }
        let layout = Self::heap_layout(size);
        // SAFETY: no block is empty.
        let pointer = unsafe { alloc(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        Self { pointer, size, origin: Origin::Heap }
    }

    fn heap_layout(size: usize) -> Layout {
        Layout::from_size_align(size, CACHE_LINE).expect("a block is smaller than the address space")
    }

    #[cfg(not(all(unix, not(miri))))]
    fn map(_size: usize, _huge_pages: bool) -> Option<Self> {
        None
    }

    /// A mapping of its own for a block of many pages: it goes back to the system when the memtable goes, whatever the
    /// allocator thinks, and pages that were never touched cost nothing. Whole huge pages are aligned as such.
    #[cfg(all(unix, not(miri)))]
    fn map(size: usize, huge_pages: bool) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        const HUGE_PAGE: usize = 2 << 20;
        if size < LEAST_MAPPING {
            return None;
        }
        let spare = if size.is_multiple_of(HUGE_PAGE) { HUGE_PAGE } else { 0 };
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh anonymous mapping replaces nothing.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), size + spare, access, flags) }.ok()?;
        let mapped = mapped.cast::<u8>();
        let before = if spare > 0 { mapped.align_offset(HUGE_PAGE) } else { 0 };
        let pointer = mapped.wrapping_add(before);
        for (at, len) in [(mapped, before), (pointer.wrapping_add(size), spare - before)] {
            if len > 0 {
                // SAFETY: cuts the mapping down to its aligned middle. Failing leaves unused pages.
                let _ = unsafe { munmap(at.cast(), len) };
            }
        }
        #[cfg(target_os = "linux")]
        if huge_pages && spare > 0 {
            // SAFETY: advice about the pages of the mapping, which a kernel may refuse.
            let _ = unsafe { rustix::mm::madvise(pointer.cast(), size, rustix::mm::Advice::LinuxHugepage) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = huge_pages;
        Some(Self { pointer: NonNull::new(pointer)?, size, origin: Origin::Mapping })
    }
}

impl Block {
    fn is_pooled(&self) -> bool {
        self.size >= LEAST_POOLED
    }

    /// Lets the system take the pages back when it is short of memory. What they hold is not needed.
    fn let_go(&self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        if matches!(self.origin, Origin::Mapping) {
            let advice = rustix::mm::Advice::LinuxFree;
            // SAFETY: nobody reads the bytes before they are written again (1, 2). A kernel may refuse.
            let _ = unsafe { rustix::mm::madvise(self.pointer.as_ptr().cast(), self.size, advice) };
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        #[cfg(test)]
        tests::HELD.set(tests::HELD.get() - self.size as i64);
        match self.origin {
            // SAFETY: allocated with this layout, and nobody uses it any more (2).
            Origin::Heap => unsafe { dealloc(self.pointer.as_ptr(), Self::heap_layout(self.size)) },
            #[cfg(all(unix, not(miri)))]
            // SAFETY: exactly the mapping made above, and nobody uses it any more (2). A failure
            // would mean that it was none.
            Origin::Mapping => {
                let _ = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.size) };
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Bytes that this thread took from the system, less those that it gave back.
        pub(crate) static HELD: Cell<i64> = const { Cell::new(0) };
        /// Bytes whose pages this thread asked for before they were touched.
        pub(super) static POPULATED: Cell<usize> = const { Cell::new(0) };
    }

    fn fill(arena: &Arena, size: usize, byte: u8) -> &[u8] {
        let piece = arena.allocate(size).pointer;
        // SAFETY: ours alone (1), and initialized here.
        unsafe {
            piece.write_bytes(byte, size);
            std::slice::from_raw_parts(piece.as_ptr(), size)
        }
    }

    #[test]
    fn pieces_are_aligned_and_apart() {
        let arena = Arena::new(true, BlockPool::new());
        let sizes = [1, 7, 8, 100, SMALL, SMALL + 1, LARGE, LARGE + 1, 3 * BLOCK_SPAN, 5];
        let rounds = if cfg!(miri) { 4 } else { 40 };
        let pieces: Vec<_> = (0..rounds * sizes.len())
            .map(|i| (i as u8, fill(&arena, sizes[i % sizes.len()], i as u8)))
            .collect();
        for (byte, piece) in pieces {
            assert_eq!(piece.as_ptr() as usize % GRANULE, 0);
            assert!(piece.iter().all(|stored| *stored == byte));
        }
    }

    #[test]
    fn an_idle_arena_is_small_and_usage_follows_allocation() {
        let arena = Arena::new(true, BlockPool::new());
        let idle = arena.memory_usage();
        assert_eq!(idle, 0);
        for _ in 0..1000 {
            fill(&arena, 1000, 1);
        }
        fill(&arena, 5 << 20, 1);
        let used = arena.memory_usage() - idle;
        let asked = 1000 * 1000 + (5 << 20);
        assert!(used >= asked && used < asked + asked / 20, "{used} for {asked}");
    }

    #[test]
    fn dropping_an_arena_gives_everything_back() {
        let before = HELD.get();
        let arena = Arena::new(true, BlockPool::new());
        for size in [10, SMALL, LARGE, LARGE + 1, 2 * BLOCK_SPAN + 1, 100] {
            fill(&arena, size, 1);
        }
        assert!(HELD.get() >= before + 3 * BLOCK_SPAN as i64);
        drop(arena);
        assert_eq!(HELD.get(), before);
    }

    #[test]
    fn full_blocks_are_used_again_up_to_the_limit() {
        let before = HELD.get();
        let pool = BlockPool::new();
        pool.make_room_for(3 * BLOCK_SPAN);
        let held = || (HELD.get() - before) / BLOCK_SPAN as i64;
        let filled = |blocks: usize| {
            let arena = Arena::new(false, Arc::clone(&pool));
            // All small blocks together are one, and every full block takes two pieces.
            (0..2 * blocks).for_each(|_| _ = fill(&arena, LARGE - GRANULE, 1));
            arena
        };
        drop(filled(2));
        let kept = held();
        assert!((1..=2).contains(&kept), "{kept}");
        let again = filled(1);
        assert_eq!(held(), kept, "nothing new was needed");
        drop(again);
        drop(filled(10));
        assert_eq!(held(), 3, "the pool keeps no more than its limit");
        pool.release_when_idle();
        assert_eq!(held(), 0);
        let last = filled(1);
        pool.release_when_idle();
        drop(filled(2));
        assert!(held() > 1, "a pool that is asked for more goes on");
        drop(last);
        assert!(held() > 1, "and keeps what comes back");
        let last = filled(1);
        pool.release_when_idle();
        assert!(held() > 1, "somebody has a block");
        drop(last);
        assert_eq!(held(), 0);
        drop(filled(1));
        drop(pool);
        assert_eq!(HELD.get(), before);
    }

    #[test]
    fn blocks_of_large_pieces_are_used_again_by_pieces_of_about_their_size() {
        let pool = BlockPool::new();
        pool.make_room_for(8 * BLOCK_SPAN);
        let before = HELD.get();
        let held = || HELD.get() - before;
        let piece = |size| {
            let arena = Arena::new(false, Arc::clone(&pool));
            fill(&arena, size, 1);
            assert!(arena.memory_usage() < size + GRANULE, "what the block has beyond the piece is not used");
            arena
        };
        drop(piece(2 * BLOCK_SPAN));
        let kept = held();
        assert_eq!(kept, 2 * BLOCK_SPAN as i64, "all that is left of it");
        for size in [2 * BLOCK_SPAN, 2 * BLOCK_SPAN - 1, 2 * BLOCK_SPAN - LARGE_UNIT] {
            drop(piece(size));
            assert_eq!(held(), kept, "{size} fit");
        }
        drop(piece(3 * LARGE));
        assert_eq!(held(), kept + 3 * LARGE as i64, "a third more than it needs is too much");
        let both = (piece(2 * BLOCK_SPAN), piece(2 * BLOCK_SPAN + 1));
        assert!(
            held() > kept + 3 * LARGE as i64 + 2 * BLOCK_SPAN as i64,
            "one is taken, and is too small besides"
        );
        drop(both);
        (0..8).for_each(|_| drop(piece(6 * BLOCK_SPAN)));
        let spans = held() as f64 / BLOCK_SPAN as f64;
        assert!((6.0..=8.0).contains(&spans), "the oldest make room: {spans}");
        let again = held();
        drop(piece(6 * BLOCK_SPAN));
        assert_eq!(held(), again, "for what was used last");
        pool.release_when_idle();
        assert_eq!(held(), 0);
    }

    #[test]
    fn pages_of_new_full_blocks_are_asked_for_in_steps() {
        let pool = BlockPool::new();
        pool.make_room_for(2 * BLOCK_SPAN);
        let populated = || POPULATED.replace(0);
        let fill_up_to = |arena: &Arena, usage| {
            while arena.memory_usage() < usage {
                fill(arena, 16 * GRANULE, 1);
            }
        };
        populated();
        let arena = Arena::new(false, Arc::clone(&pool));
        fill_up_to(&arena, BLOCK_SPAN);
        assert_eq!(populated(), 0, "what is in small blocks is touched as it comes");
        let next_block = |size| {
            let newest = block_of(arena.cursor.load(Relaxed));
            while block_of(arena.cursor.load(Relaxed)) == newest {
                populated();
                fill(&arena, size, 1);
            }
            populated()
        };
        let half_a_step = STEP / 2;
        next_block(half_a_step);
        assert_eq!(next_block(half_a_step), STEP, "a new block has the step of its first piece");
        let steps: Vec<_> = (0..3)
            .map(|_| {
                fill(&arena, half_a_step, 1);
                populated() / STEP
            })
            .collect();
        assert_eq!(steps, [1, 0, 0], "the piece that comes to a step asks for it");
        let nearly_a_step = STEP - GRANULE;
        assert_eq!(next_block(nearly_a_step), STEP, "what a piece needs");
        fill(&arena, nearly_a_step, 1);
        assert_eq!(populated(), STEP, "which comes to the end of the block");
        fill(&Arena::new(false, BlockPool::new()), LARGE + 1, 1);
        assert_eq!(populated(), LARGE + LARGE_UNIT, "a large piece has all of its block at once");
        drop(arena);
        let arena = Arena::new(false, pool);
        fill_up_to(&arena, 3 * BLOCK_SPAN); // Small blocks, which are a little more than one large, then two of the pool.
        assert_eq!(populated(), 0, "what comes from the pool has its pages");
        fill_up_to(&arena, 6 * BLOCK_SPAN);
        assert!(populated() >= 2 * BLOCK_SPAN);
    }

    #[test]
    fn threads_get_different_pieces() {
        let arena = Arena::new(false, BlockPool::new());
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            let arena = &arena;
            let threads = [0u8, 1, 2, 3].map(|thread| {
                scope.spawn(move || {
                    let sizes = [24usize, 136, 1000, 20_000];
                    let mut pieces = Vec::new();
                    for round in 0..rounds {
                        pieces.push(fill(arena, sizes[round % 37 % 4], thread));
                    }
                    assert!(pieces.iter().all(|piece| piece.iter().all(|byte| *byte == thread)));
                })
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
