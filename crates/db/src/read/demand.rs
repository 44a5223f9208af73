//! Whether readers want what flushes write.

use super::view::SuperVersion;
use crate::table_cache::TableSlot;

/// So many tables of a level are asked.
const MOST_TABLES: usize = 8;
/// So many blocks are looked for in all.
const MOST_BLOCKS: u64 = 64;

impl SuperVersion {
    /// Whether readers have wanted most of the blocks that came before those of the next flush. What is new in level 0 has not been
    /// there for long enough to tell, so its oldest table is asked; if there is none, those of the level below.
    pub(crate) fn wants_what_is_new(&self) -> bool {
        let Some(level) = self.levels.iter().find(|level| !level.tables.is_empty()) else { return false };
        let is_level0 = self.levels.first().is_some_and(|first| !first.tables.is_empty());
        let step = if is_level0 { level.tables.len() } else { level.tables.len().div_ceil(MOST_TABLES) };
        let asked =
            || level.tables.iter().rev().step_by(step).filter_map(|slot| TableSlot::open_reader(slot));
        let most = (MOST_BLOCKS / asked().count().max(1) as u64).max(1);
        let (mut wanted, mut looked_at) = (0, 0);
        for table in asked() {
            let (some, of) = table.wanted_blocks(most);
            (wanted, looked_at) = (wanted + some, looked_at + of);
        }
        2 * wanted > looked_at
    }
}
