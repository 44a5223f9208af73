//! Writes the bytes of a log record by record, with right checksums, whatever the records say.

use crate::input::Input;
use ironstone_base::checksum::{crc32c, mask_crc};
use ironstone_wal::{BLOCK_SIZE, HEADER_LEN, LogFramer, RECYCLABLE_HEADER_LEN, RecordKind};

/// Appends one physical record, which need not be one that a writer would write here.
pub(crate) fn put_physical(out: &mut Vec<u8>, kind: u8, log: u32, payload: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(payload.len().min(BLOCK_SIZE) as u16).to_le_bytes());
    out.push(kind);
    if RecordKind::is_recyclable(kind) {
        out.extend_from_slice(&log.to_le_bytes());
    }
    out.extend_from_slice(payload);
    mend_one(&mut out[start..]);
}

/// Makes the checksum of the physical record at the start of `bytes` right. Answers its length; `None` if
/// it is cut short.
fn mend_one(bytes: &mut [u8]) -> Option<usize> {
    let header = *bytes.first_chunk::<HEADER_LEN>()?;
    let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
    let long = RecordKind::is_recyclable(header[6]);
    let total = len + if long { RECYCLABLE_HEADER_LEN } else { HEADER_LEN };
    let crc = mask_crc(crc32c(bytes.get(6..total)?));
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    Some(total)
}

/// Makes the checksums of a log right again, block by block, as far as its lengths make sense.
pub(crate) fn mend(bytes: &mut [u8]) {
    for block in bytes.chunks_mut(BLOCK_SIZE) {
        let mut rest = block;
        // Zeros are no record, and have to stay what they are.
        while rest.first_chunk::<HEADER_LEN>().is_some_and(|header| *header != [0; HEADER_LEN]) {
            let Some(len) = mend_one(rest) else { break };
            rest = rest.split_at_mut(len).1;
        }
    }
}

/// Appends what `payload` says as one logical record.
pub(crate) fn put_logical(framer: &mut LogFramer, out: &mut Vec<u8>, payload: &[u8]) {
    framer.frame(&[payload], out);
}

/// A payload: bytes of the input, then maybe many of the same, so that a short input makes a long record.
pub(crate) fn payload(input: &mut Input<'_>) -> Vec<u8> {
    let shape = input.byte();
    let mut bytes = input.short().to_vec();
    if shape & 0x0f == 0 {
        let more = usize::from(input.u16()) * 2;
        bytes.resize(bytes.len() + more, shape);
    }
    bytes
}

/// Flips bits at places of the input's choice, then maybe cuts. Answers whether anything changed.
pub(crate) fn damage(input: &mut Input<'_>, bytes: &mut Vec<u8>) -> bool {
    let before = bytes.clone();
    for _ in 0..input.byte() % 8 {
        let (at, change) = (usize::from(input.u16()), input.byte());
        let len = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at % len) {
            *byte ^= change;
        }
    }
    if input.byte() & 3 == 3 {
        let cut = usize::from(input.u16()) % (bytes.len() + 1);
        bytes.truncate(cut);
    }
    *bytes != before
}
