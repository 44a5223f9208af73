//! What a put does to the value that is there, if an application says so.

/// Decides what a put makes of the value that is there, with
/// [`inplace_update_support`](crate::ColumnFamilyOptions::inplace_update_support): what is put is a change then, and not
/// a value.
///
/// The log keeps the change. So an opening after a crash calls this again, with the same values in the same order, and it
/// must answer the same: each time the database is open.
///
/// ```
/// use ironstone::{Db, InplaceCallback, Options, UpdateStatus};
/// use std::sync::Arc;
///
/// /// Adds numbers of one byte.
/// struct Add;
///
/// impl InplaceCallback for Add {
///     fn update(&self, existing: Option<&mut Vec<u8>>, delta: &[u8]) -> UpdateStatus {
///         let (Some(existing), &[delta]) = (existing, delta) else { return UpdateStatus::Updated(delta.to_vec()) };
///         existing[0] = existing[0].wrapping_add(delta);
///         UpdateStatus::UpdatedInPlace
///     }
/// }
///
/// # fn main() -> ironstone::Result<()> {
/// let mut options = Options::in_memory();
/// options.db.set("allow_concurrent_memtable_write", "false")?;
/// options.cf.inplace_update_support = true;
/// options.cf.inplace_callback = Some(Arc::new(Add));
/// let db = Db::open(&options, "/db")?;
/// db.put(b"visits", [2])?;
/// db.put(b"visits", [3])?;
/// assert_eq!(db.get(b"visits")?.as_deref(), Some(&[5][..]));
/// # Ok(())
/// # }
/// ```
pub trait InplaceCallback: Send + Sync {
    /// What a put of `delta` makes of `existing`; `None`: there is no value. Called by one writer at a time, while no
    /// reader sees the value. `existing` is a copy: what becomes of it counts with
    /// [`UpdatedInPlace`](UpdateStatus::UpdatedInPlace) alone.
    fn update(&self, existing: Option<&mut Vec<u8>>, delta: &[u8]) -> UpdateStatus;
}

/// What an [`InplaceCallback`] did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpdateStatus {
    /// It changed `existing`, which is the value from now on: in its place if it did not grow, else as an entry of its
    /// own. Where nothing exists, the same as [`UpdateFailed`](Self::UpdateFailed).
    UpdatedInPlace,
    /// This is the value from now on, as an entry of its own.
    Updated(Vec<u8>),
    /// Nothing: all stays as it is. No error; RocksDB's word for it.
    UpdateFailed,
}
