//! What the benchmarks do.

pub mod beside;
pub mod codec;
pub mod fill;
pub mod lookup;
pub mod modify;
pub mod scan;
