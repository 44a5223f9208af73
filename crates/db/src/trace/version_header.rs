//! How traces of I/O and of the block cache begin.
//!
//! ```text
//! begin      1    magic, prefixed by its length | major version u32 LE | minor version u32 LE
//! ```

use super::record::{MAGIC, encode, kind, parts};
use ironstone_base::coding::{get_fixed32, get_length_prefixed, put_fixed32, put_length_prefixed};

/// What a new trace says about who wrote it: its format is that of RocksDB 11.12.
const VERSION: (u32, u32) = (11, 12);

/// The first record of traces that go by this name.
pub(super) struct VersionHeader {
    pub name: &'static str,
}

impl VersionHeader {
    pub fn record(&self, time_micros: u64) -> Vec<u8> {
        encode(time_micros, kind::BEGIN, |payload| {
            put_length_prefixed(payload, MAGIC.as_bytes());
            put_fixed32(payload, VERSION.0);
            put_fixed32(payload, VERSION.1);
        })
    }

    /// The major and minor version of the RocksDB that wrote a trace which begins with `record`; else what is wrong with it.
    pub fn version(&self, record: &[u8]) -> Result<(u32, u32), String> {
        let name = self.name;
        let (_, kind, mut payload) = parts(record).map_err(|bad| bad.0.to_owned())?;
        let magic = get_length_prefixed(&mut payload).filter(|_| kind == kind::BEGIN);
        if magic != Some(MAGIC.as_bytes()) {
            return Err(format!("not {name} (bad magic)"));
        }
        let mut number = || get_fixed32(&mut payload).ok_or_else(|| format!("the head of {name} ends early"));
        let version = (number()?, number()?);
        match payload.is_empty() {
            true => Ok(version),
            false => Err(format!("the head of {name} has bytes that mean nothing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let header = VersionHeader { name: "a trace" };
        let record = header.record(5);
        assert_eq!(header.version(&record), Ok(VERSION));
        for len in 0..record.len() {
            assert!(header.version(&record[..len]).is_err(), "{len}");
        }
        assert!(header.version(&[&record[..], b"x"].concat()).unwrap_err().contains("mean nothing"));
        let mut other = record.clone();
        other[8] = kind::END;
        assert_eq!(header.version(&other), Err("not a trace (bad magic)".to_owned()));
        let mut other = record;
        other[15] ^= 1;
        assert_eq!(header.version(&other), Err("not a trace (bad magic)".to_owned()));
    }
}
