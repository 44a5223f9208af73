//! The bytes of a file, in chunks that copies share until one of them is written to.

use ironstone_base::sync::Arc;

/// The length of every chunk but the last, which may be shorter.
const CHUNK: usize = 32 << 10;

/// The bytes of a file. Cloning costs a reference count per chunk.
#[derive(Clone, Default, Debug)]
pub(super) struct Image {
    chunks: Vec<Arc<Vec<u8>>>,
    len: u64,
}

impl Image {
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut image = Self::default();
        image.write(0, bytes);
        image
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Copies from `offset` on; less than `buf.len()` only at the end.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let end = self.len.min(offset.saturating_add(buf.len() as u64));
        let mut at = offset;
        let mut done = 0;
        while at < end {
            let chunk = &self.chunks[at as usize / CHUNK];
            let from = at as usize % CHUNK;
            let count = (chunk.len() - from).min((end - at) as usize);
            buf[done..done + count].copy_from_slice(&chunk[from..from + count]);
            (at, done) = (at + count as u64, done + count);
        }
        done
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len as usize);
        self.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        bytes
    }

    /// Puts `data` at `offset`; a gap before it becomes zeros.
    pub(super) fn write(&mut self, offset: u64, mut data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if offset > self.len {
            self.set_len(offset);
        }
        let mut at = offset as usize;
        while !data.is_empty() {
            if at / CHUNK == self.chunks.len() {
                self.chunks.push(Arc::default());
            }
            let chunk = Arc::make_mut(&mut self.chunks[at / CHUNK]);
            let from = at % CHUNK;
            let (now, later) = data.split_at(data.len().min(CHUNK - from));
            let (over, behind) = now.split_at(now.len().min(chunk.len() - from));
            chunk[from..from + over.len()].copy_from_slice(over);
            chunk.extend_from_slice(behind);
            (at, data) = (at + now.len(), later);
        }
        self.len = self.len.max(at as u64);
    }

    /// Cuts to `len`, or pads with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        let count = (len as usize).div_ceil(CHUNK);
        if count < self.chunks.len() || len < self.len {
            self.chunks.truncate(count);
        } else if let Some(last) = self.chunks.last_mut().filter(|last| last.len() < CHUNK && len > self.len)
        {
            let wanted = CHUNK.min(last.len() + (len - self.len) as usize);
            Arc::make_mut(last).resize(wanted, 0);
        }
        if count > self.chunks.len() {
            // One chunk of zeros for all: a long gap costs little.
            let zeros = Arc::new(vec![0; CHUNK]);
            self.chunks.resize(count, zeros);
        }
        let tail = len as usize - count.saturating_sub(1) * CHUNK;
        if let Some(last) = self.chunks.last_mut().filter(|last| last.len() != tail) {
            Arc::make_mut(last).truncate(tail);
        }
        self.len = len;
    }

    /// Makes the bytes from `start` to `end`, as far as they exist, zero.
    pub(super) fn zero(&mut self, start: u64, end: u64) {
        let end = end.min(self.len);
        if start < end {
            self.write(start, &vec![0; (end - start) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain vector, around the chunk borders.
    #[test]
    fn behaves_like_a_vector() {
        let mut random = super::super::crash::Random::new(7);
        for _ in 0..30 {
            let (mut image, mut model) = (Image::default(), Vec::new());
            for step in 0..60 {
                let kept = (image.clone(), model.clone());
                let near = (random.below(4) * CHUNK as u64 + random.below(5)).saturating_sub(2);
                let spot = if random.below(2) == 0 { near } else { random.below(3 * CHUNK as u64) };
                match random.below(4) {
                    0 => {
                        image.set_len(spot);
                        model.resize(spot as usize, 0);
                    }
                    1 => {
                        image.zero(spot, spot + 40_000);
                        let end = model.len().min(spot as usize + 40_000);
                        if (spot as usize) < end {
                            model[spot as usize..end].fill(0);
                        }
                    }
                    _ => {
                        let data = vec![step as u8 + 1; random.below(70_000) as usize];
                        image.write(spot, &data);
                        if !data.is_empty() {
                            model.resize(model.len().max(spot as usize + data.len()), 0);
                            model[spot as usize..spot as usize + data.len()].copy_from_slice(&data);
                        }
                    }
                }
                assert_eq!(image.len(), model.len() as u64);
                assert!(image.to_vec() == model);
                assert!(kept.0.to_vec() == kept.1, "a write reached a copy");
                let mut buf = vec![0xaa; 50_000];
                let count = image.read(spot, &mut buf);
                let expected = model.get(spot as usize..).unwrap_or(&[]);
                assert!(buf[..count] == expected[..expected.len().min(50_000)]);
            }
        }
    }
}
