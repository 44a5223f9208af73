//! Keys in the messages of errors, which go to places where what users store is not to be seen.

use crate::{InternalKey, ValueType};
use std::fmt;

/// Whether messages of errors may show what users store (RocksDB's `allow_data_in_errors`). Default: they may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataInErrors(pub bool);

impl DataInErrors {
    /// A user key for a message: itself, or only its length.
    pub fn user_key(self, key: &[u8]) -> UserKeyInError<'_> {
        UserKeyInError { key, shown: self.0 }
    }
    /// The key of an entry for a message. Sequence number and type are shown in any case.
    pub fn key(self, key: InternalKey<'_>) -> KeyInError<'_> {
        KeyInError { key, shown: self.0 }
    }
}

/// See [`DataInErrors::user_key`].
pub struct UserKeyInError<'a> {
    key: &'a [u8],
    shown: bool,
}

impl fmt::Display for UserKeyInError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown {
            true => write!(f, "\"{}\"", self.key.escape_ascii()),
            false => write!(f, "<a key of {} bytes>", self.key.len()),
        }
    }
}

/// See [`DataInErrors::key`].
pub struct KeyInError<'a> {
    key: InternalKey<'a>,
    shown: bool,
}

impl fmt::Display for KeyInError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.key.trailer().to_le_bytes()[0];
        write!(f, "{}@{}:", DataInErrors(self.shown).user_key(self.key.user_key()), self.key.sequence())?;
        match ValueType::from_byte(kind) {
            Some(known) => write!(f, "{known:?}"),
            None => write!(f, "{kind:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InternalKeyBuf, SequenceNumber};

    #[test]
    fn a_key_is_shown_only_if_it_may_be() {
        let key = InternalKeyBuf::new(b"secret\0", SequenceNumber(7), ValueType::Merge);
        let text = |allowed| DataInErrors(allowed).key(key.as_key()).to_string();
        assert_eq!(text(true), r#""secret\x00"@7:Merge"#);
        assert_eq!(text(false), "<a key of 7 bytes>@7:Merge");
    }
}
