//! A table that is being written: whole blocks in local files, the rest in memory.

use crate::block_cache::{StagedBlock, StagedSource};
use crate::object::Object;
use crate::object::Objects;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use std::collections::VecDeque;
use std::path::Path;

/// The bytes of a file.
pub(crate) struct Staging {
    objects: Arc<Objects>,
    /// All of `block_bytes` bytes.
    blocks: Vec<StagedBlock>,
    /// Fewer than `block_bytes` bytes.
    tail: Vec<u8>,
}

impl Staging {
    pub(crate) fn new(objects: Arc<Objects>) -> Self {
        Self { objects, blocks: Vec::new(), tail: Vec::new() }
    }

    /// The bytes of an object that is there.
    pub(crate) fn of(objects: Arc<Objects>, object: &Arc<Object>) -> Result<Self> {
        let (mut staging, step) = (Self::new(objects), object.block_bytes());
        let mut at = 0;
        while at < object.size() {
            let end = object.size().min(at + step);
            let fetched = object.client().start(object.clone().fetch(at, end)).wait();
            staging.append(&crate::object::answer(fetched)?.to_bytes())?;
            at = end;
        }
        Ok(staging)
    }

    fn block_len(&self) -> usize {
        self.objects.block_bytes as usize
    }
    pub(crate) fn size(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(self.objects.block_bytes) + self.tail.len() as u64
    }

    pub(crate) fn append(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(self.block_len() - self.tail.len()));
            self.tail.extend_from_slice(now);
            data = later;
            if self.tail.len() == self.block_len() {
                self.blocks.push(self.objects.cache.stage(&self.tail)?);
                self.tail.clear();
            }
        }
        Ok(())
    }

    /// Cuts or pads with zeros.
    pub(crate) fn truncate(&mut self, size: u64) -> Result<()> {
        if size >= self.size() {
            let zeros = vec![0; self.block_len()];
            while self.size() < size {
                let count = (size - self.size()).min(zeros.len() as u64);
                self.append(&zeros[..count as usize])?;
            }
            return Ok(());
        }
        let (full, rest) = (size / self.block_len() as u64, (size % self.block_len() as u64) as usize);
        if let Some(block) = self.blocks.get(full as usize) {
            self.tail = block.source().read()?;
            self.blocks.truncate(full as usize);
        }
        self.tail.truncate(rest);
        Ok(())
    }

    /// Gives the bytes, piece by piece. The staging must live until all are given.
    fn pieces(&self) -> impl FnMut() -> Result<Option<Vec<u8>>> + Send + 'static {
        let mut blocks: VecDeque<StagedSource> = self.blocks.iter().map(StagedBlock::source).collect();
        let mut tail = Some(self.tail.clone()).filter(|tail| !tail.is_empty());
        move || match blocks.pop_front() {
            Some(block) => block.read().map(Some),
            None => Ok(tail.take()),
        }
    }

    /// Writes all bytes to `key`, in the place of what is there. When this returns, they are durable.
    pub(crate) fn upload(&self, path: &Path, key: &str) -> Result<()> {
        self.objects.make_way(path, key)?;
        let info = self.objects.client.upload(path, key, self.size(), self.pieces())?;
        self.objects.note(key, info);
        Ok(())
    }

    /// Lets the cache have the blocks of what was uploaded.
    pub(crate) fn keep(self, path: &Path, key: &str) -> Result<()> {
        let cache = &self.objects.cache;
        if !cache.is_enabled() {
            return Ok(());
        }
        let info = self.objects.find(path, key)?;
        let info = info.filter(|info| info.size == self.size());
        let info =
            info.ok_or_else(|| Error::io_message(format!("{}: gone before it was closed", path.display())))?;
        let last = if self.tail.is_empty() { None } else { cache.stage(&self.tail).ok() };
        for (index, block) in (0..).zip(self.blocks.into_iter().chain(last)) {
            cache.keep(crate::block_cache::BlockKey { identity: info.identity, index }, block);
        }
        Ok(())
    }
}
