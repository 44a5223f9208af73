//! Ciphers of blocks.

use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use ironstone_base::{Error, Result};
use std::fmt;

/// Encrypts blocks. The key stream takes no more of a cipher: nothing is ever decrypted with it.
pub trait BlockCipher: Send + Sync + fmt::Debug {
    /// Bytes of a block: 8 to 2048.
    fn block_size(&self) -> usize;
    /// Encrypts `blocks`, a whole number of blocks, each by itself.
    fn encrypt(&self, blocks: &mut [u8]);
}

/// AES, with the instructions of the processor where it has some.
pub struct Aes(Width);

enum Width {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl Aes {
    /// With a key of 16, 24 or 32 bytes; `InvalidArgument` for others.
    pub fn new(key: &[u8]) -> Result<Self> {
        let wrong =
            || Error::invalid_argument(format!("an AES key has 16, 24 or 32 bytes, not {}", key.len()));
        let width = match key.len() {
            16 => Aes128::new_from_slice(key).ok().map(Width::Aes128),
            24 => Aes192::new_from_slice(key).ok().map(Width::Aes192),
            32 => Aes256::new_from_slice(key).ok().map(Width::Aes256),
            _ => None,
        };
        width.map(Self).ok_or_else(wrong)
    }
}

impl BlockCipher for Aes {
    fn block_size(&self) -> usize {
        16
    }
    fn encrypt(&self, blocks: &mut [u8]) {
        let (blocks, rest) = Array::slice_as_chunks_mut(blocks);
        assert!(rest.is_empty(), "{} bytes are no whole block", rest.len());
        match &self.0 {
            Width::Aes128(cipher) => cipher.encrypt_blocks(blocks),
            Width::Aes192(cipher) => cipher.encrypt_blocks(blocks),
            Width::Aes256(cipher) => cipher.encrypt_blocks(blocks),
        }
    }
}

/// Without the key.
impl fmt::Debug for Aes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Width::Aes128(_) => "Aes128",
            Width::Aes192(_) => "Aes192",
            Width::Aes256(_) => "Aes256",
        })
    }
}

/// RocksDB's cipher for tests, `ROT13`: adds 13 to each byte. Hides nothing.
#[derive(Debug)]
pub struct Rot13 {
    block_size: usize,
}

impl Rot13 {
    /// With blocks of so many bytes; RocksDB's `1://test` has 32.
    pub fn new(block_size: usize) -> Self {
        Self { block_size }
    }
}

impl BlockCipher for Rot13 {
    fn block_size(&self) -> usize {
        self.block_size
    }
    fn encrypt(&self, blocks: &mut [u8]) {
        blocks.iter_mut().for_each(|byte| *byte = byte.wrapping_add(13));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of FIPS 197, appendix C.
    #[test]
    fn aes_is_aes() {
        let key: Vec<u8> = (0..32).collect();
        let plain: Vec<u8> = (0..16).map(|at| at * 0x11).collect();
        for (len, expected) in [
            (16, 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128),
            (24, 0xdda9_7ca4_864c_dfe0_6eaf_70a0_ec0d_7191),
            (32, 0x8ea2_b7ca_5167_45bf_eafc_4990_4b49_6089),
        ] {
            let mut two = [&plain[..], &plain[..]].concat();
            Aes::new(&key[..len]).unwrap().encrypt(&mut two);
            assert_eq!(two[..16], expected.to_be_bytes(), "key of {len} bytes");
            assert_eq!(two[16..], two[..16]);
        }
        assert!(Aes::new(&key[..20]).unwrap_err().to_string().contains("not 20"));
    }
}
