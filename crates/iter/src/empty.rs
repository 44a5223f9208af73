//! The iterator over nothing.

use crate::InternalIterator;
use ironstone_base::{InternalKey, Result};

/// Has no entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyIterator;

impl InternalIterator for EmptyIterator {
    fn valid(&self) -> bool {
        false
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn seek(&mut self, _: InternalKey<'_>) -> Result<bool> {
        Ok(false)
    }
    fn seek_for_prev(&mut self, _: InternalKey<'_>) -> Result<bool> {
        Ok(false)
    }
    fn next(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn prev(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn key(&self) -> InternalKey<'_> {
        unreachable!("never valid")
    }
    fn value(&self) -> &[u8] {
        unreachable!("never valid")
    }
}
