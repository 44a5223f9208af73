//! Writes: the commit pipeline and what slows it down.

pub(crate) mod commit;
pub(crate) mod controller;
pub(crate) mod fill_rate;
pub(crate) mod predecessor;
pub(crate) mod publish;
pub(crate) mod stalls;
pub(crate) mod switch;
pub(crate) mod sync_group;
pub(crate) mod wal_lock;
