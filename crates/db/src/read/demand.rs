//! Whether readers want what flushes write.

use super::view::SuperVersion;
use crate::table_cache::TableSlot;
use ironstone_version::FileMetaData;

/// So many tables of a level are asked.
const MOST_TABLES: usize = 8;
/// A table of level 0 is new until it is older than this, in seconds.
const NEW_SECONDS: u64 = 1;
/// So many blocks are looked for in all.
const MOST_BLOCKS: u64 = 64;

impl SuperVersion {
    /// Whether readers have wanted a quarter of the blocks that came before those of the next flush, or more: to put a block into
    /// the cache costs a fraction of what reading it from the file does. What is new in level 0 has not been there for long
    /// enough to tell, so its oldest table is asked; if there is none, or that is new at `now` (seconds since 1970) too, those
    /// of the level below.
    pub(crate) fn wants_what_is_new(&self, now: u64) -> bool {
        let mut levels = self.levels.iter().enumerate().filter(|(_, level)| !level.tables.is_empty());
        let Some(mut asked) = levels.next() else { return false };
        let is_new = |file: &FileMetaData| file.file_creation_time + NEW_SECONDS >= now;
        if asked.0 == 0 && asked.1.files.files().last().is_some_and(|file| is_new(file)) {
            asked = levels.next().unwrap_or(asked);
        }
        let (number, level) = asked;
        let step = if number == 0 { level.tables.len() } else { level.tables.len().div_ceil(MOST_TABLES) };
        let asked =
            || level.tables.iter().rev().step_by(step).filter_map(|slot| TableSlot::open_reader(slot));
        let most = (MOST_BLOCKS / asked().count().max(1) as u64).max(1);
        let (mut wanted, mut looked_at) = (0, 0);
        for table in asked() {
            let (some, of) = table.wanted_blocks(most);
            (wanted, looked_at) = (wanted + some, looked_at + of);
        }
        4 * wanted > looked_at
    }
}
