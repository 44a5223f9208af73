//! The key stream of a file.

use crate::cipher::BlockCipher;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};

/// What stands before the contents of each file.
pub(crate) const PREFIX: usize = 4096;
/// So much of the key stream is made at a time, about.
const CHUNK: usize = 4096;

/// The key stream of one file.
#[derive(Clone)]
pub(crate) struct Stream {
    cipher: Arc<dyn BlockCipher>,
    /// The initialization vector.
    vector: Vec<u8>,
    first: u64,
}

/// A prefix for a new file.
pub(crate) fn new_prefix() -> Result<Vec<u8>> {
    let mut prefix = vec![0; PREFIX];
    let failed =
        |error| Error::io_message(format!("the system gave no random bytes for a new file: {error}"));
    getrandom::fill(&mut prefix).map_err(failed)?;
    Ok(prefix)
}

impl Stream {
    /// Of the file that begins with `prefix`.
    pub(crate) fn new(cipher: &Arc<dyn BlockCipher>, prefix: &[u8]) -> Self {
        let size = cipher.block_size();
        let counter = prefix[..8].try_into().expect("8 bytes");
        let vector = prefix[size..2 * size].to_vec();
        Self { cipher: Arc::clone(cipher), vector, first: u64::from_le_bytes(counter) }
    }

    /// Encrypts, or decrypts, what stands at `offset` of the contents.
    pub(crate) fn apply(&self, offset: u64, data: &mut [u8]) {
        let size = self.vector.len();
        let mut at = (PREFIX as u64).saturating_add(offset); // Nothing is there to be encrypted where that matters.
        let mut keys = Vec::with_capacity(CHUNK.min(data.len()) + 2 * size);
        let mut rest = data;
        while !rest.is_empty() {
            let (block, skipped) = (at / size as u64, (at % size as u64) as usize);
            let wanted = rest.len().min(CHUNK);
            keys.clear();
            for number in 0..(skipped + wanted).div_ceil(size) as u64 {
                let counter = self.first.wrapping_add(block).wrapping_add(number);
                keys.extend_from_slice(&counter.to_le_bytes());
                keys.extend_from_slice(&self.vector[8..]);
            }
            self.cipher.encrypt(&mut keys);
            let (now, later) = rest.split_at_mut(wanted);
            now.iter_mut().zip(&keys[skipped..]).for_each(|(byte, key)| *byte ^= key);
            (at, rest) = (at + wanted as u64, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aes, Rot13};

    #[test]
    fn any_part_is_that_of_the_whole() {
        let ciphers: [Arc<dyn BlockCipher>; 3] =
            [Arc::new(Aes::new(&[1; 16]).unwrap()), Arc::new(Rot13::new(32)), Arc::new(Rot13::new(10))];
        for cipher in ciphers {
            let stream = Stream::new(&cipher, &new_prefix().unwrap());
            let mut whole = vec![0; 10_000];
            stream.apply(0, &mut whole);
            for (offset, len) in [(0, 1), (1, 15), (15, 2), (31, 5000), (4096, 4096), (9_999, 1), (5, 0)] {
                let mut part = vec![0; len];
                stream.apply(offset as u64, &mut part);
                assert_eq!(part, whole[offset..offset + len], "{cipher:?}: {len} at {offset}");
                stream.apply(offset as u64, &mut part);
                assert!(part.iter().all(|&byte| byte == 0));
            }
        }
    }

    /// Counter and vector stand where RocksDB has them.
    #[test]
    fn the_stream_is_rocksdbs() {
        let cipher: Arc<dyn BlockCipher> = Arc::new(Rot13::new(32));
        let mut prefix = vec![0; PREFIX];
        prefix[..8].copy_from_slice(&(u64::MAX - 100).to_le_bytes());
        prefix[32..64].copy_from_slice(&[50; 32]);
        let stream = Stream::new(&cipher, &prefix);
        let mut data = [0; 33];
        stream.apply(0, &mut data);
        // The contents begin with block 128, and the counter wraps around.
        assert_eq!(data[..8], [27 + 13, 13, 13, 13, 13, 13, 13, 13]);
        assert_eq!((data[8..32].to_vec(), data[32]), (vec![63; 24], 28 + 13));
    }
}
