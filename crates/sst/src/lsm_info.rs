//! Where in the tree a table was made: the property `rocksdb.lsm.info.at.creation`, one number.
//!
//! ```text
//! bits 0..8   the level up to 254; 255 if it is unknown
//! bits 8..10  0 unknown, 1 not bottommost, 2 bottommost, 3 in no tree
//! the rest    reserved
//! ```

const UNKNOWN_LEVEL: u32 = 0xff;
const STATE_SHIFT: u32 = 8;
const NOT_BOTTOMMOST: u64 = 1;
const BOTTOMMOST: u64 = 2;
const NOT_APPLICABLE: u64 = 3;

/// Where in the tree a table was made. It may have been moved since.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LsmInfoAtCreation {
    /// The table does not say: it is older than RocksDB 11.12, or not block-based.
    #[default]
    Unknown,
    /// A flush, a compaction, a recovery or a repair made it.
    Applicable {
        /// The level that it was made for, if that is known.
        level: Option<u32>,
        /// Nothing of its keys was below.
        is_bottommost: bool,
    },
    /// It was made outside of a tree, as by an `SstFileWriter`.
    NotApplicable,
}

impl LsmInfoAtCreation {
    /// As the property has it. Levels that do not fit in are unknown.
    pub fn encode(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::NotApplicable => NOT_APPLICABLE << STATE_SHIFT,
            Self::Applicable { level, is_bottommost } => {
                let state = if is_bottommost { BOTTOMMOST } else { NOT_BOTTOMMOST };
                let level = level.filter(|level| *level < UNKNOWN_LEVEL).unwrap_or(UNKNOWN_LEVEL);
                (state << STATE_SHIFT) | u64::from(level)
            }
        }
    }

    /// What the property says. Bits that are not known yet are passed over.
    pub fn decode(encoded: u64) -> Self {
        let level = Some(encoded as u32 & UNKNOWN_LEVEL).filter(|level| *level < UNKNOWN_LEVEL);
        match (encoded >> STATE_SHIFT) & 3 {
            NOT_BOTTOMMOST => Self::Applicable { level, is_bottommost: false },
            BOTTOMMOST => Self::Applicable { level, is_bottommost: true },
            NOT_APPLICABLE => Self::NotApplicable,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_packed_as_rocksdb_packs_it() {
        let at = |level, is_bottommost| LsmInfoAtCreation::Applicable { level, is_bottommost };
        for (info, encoded) in [
            (LsmInfoAtCreation::Unknown, 0),
            (at(Some(0), false), 0x100),
            (at(Some(6), true), 0x206),
            (at(Some(254), false), 0x1fe),
            (at(None, false), 0x1ff),
            (at(None, true), 0x2ff),
            (LsmInfoAtCreation::NotApplicable, 0x300),
        ] {
            assert_eq!(info.encode(), encoded, "{info:?}");
            assert_eq!(LsmInfoAtCreation::decode(encoded), info, "{encoded:#x}");
            assert_eq!(
                LsmInfoAtCreation::decode(encoded | (0xabcd << 10)),
                info,
                "{encoded:#x} of a later version"
            );
        }
        assert_eq!(at(Some(255), true).encode(), 0x2ff);
        assert_eq!(at(Some(u32::MAX), true).encode(), 0x2ff);
    }
}
