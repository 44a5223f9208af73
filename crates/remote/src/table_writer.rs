//! Writes a table, which becomes an object when it is synced or closed.

use crate::error::refused;
use crate::object::{Object, Objects};
use crate::staging::Staging;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use ironstone_vfs::{WritableFile, check_handed_over};
use std::io;
use std::path::{Path, PathBuf};

/// What there is to upload.
enum Content {
    /// What the remote has: nothing was changed.
    Remote(Arc<Object>),
    /// `uploaded`: the remote has all of it.
    Staged {
        staging: Staging,
        uploaded: bool,
    },
    /// A call failed: nobody knows what is there.
    Failed,
    Closed,
}

/// A table that is being written.
pub(crate) struct RemoteWritableFile {
    objects: Arc<Objects>,
    path: PathBuf,
    key: String,
    content: Content,
    /// Whether the cache keeps the blocks.
    keep: bool,
}

impl RemoteWritableFile {
    /// A new table.
    pub(crate) fn create(objects: Arc<Objects>, path: &Path, key: String, keep: bool) -> Self {
        let staging = Staging::new(objects.clone());
        let content = Content::Staged { staging, uploaded: false };
        Self { objects, path: path.to_owned(), key, content, keep }
    }

    /// A table that is there. Its bytes are only fetched if it is changed.
    pub(crate) fn append_to(
        objects: Arc<Objects>,
        path: &Path,
        key: String,
        object: Arc<Object>,
        keep: bool,
    ) -> Self {
        Self { objects, path: path.to_owned(), key, content: Content::Remote(object), keep }
    }

    /// Does `change`. After a failure the file takes no more.
    fn change(&mut self, act: &str, change: impl FnOnce(&mut Staging) -> Result<()>) -> Result<()> {
        let staging = match std::mem::replace(&mut self.content, Content::Failed) {
            Content::Remote(object) => Staging::of(self.objects.clone(), &object),
            Content::Staged { staging, .. } => Ok(staging),
            content => {
                self.content = content;
                return Err(self.unusable(act));
            }
        };
        let changed = staging.and_then(|mut staging| change(&mut staging).map(|()| staging));
        let staging = changed.map_err(|error| error.context(format!("{act} {}", self.path.display())))?;
        self.content = Content::Staged { staging, uploaded: false };
        Ok(())
    }

    fn unusable(&self, act: &str) -> Error {
        match self.content {
            Content::Failed => {
                Error::io_message(format!("{act} {}: an earlier call failed", self.path.display()))
            }
            _ => refused(act, &self.path, io::ErrorKind::InvalidInput).context("the file is closed"),
        }
    }

    fn upload(&mut self, act: &str) -> Result<()> {
        let Content::Staged { staging, uploaded } = &mut self.content else {
            return if matches!(self.content, Content::Remote(_)) { Ok(()) } else { Err(self.unusable(act)) };
        };
        if !*uploaded {
            if let Err(error) = staging.upload(&self.path, &self.key) {
                self.content = Content::Failed;
                return Err(error);
            }
            *uploaded = true;
        }
        Ok(())
    }
}

impl WritableFile for RemoteWritableFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        if data.is_empty() && !matches!(self.content, Content::Failed | Content::Closed) {
            return Ok(());
        }
        self.change("write to", |staging| staging.append(data))
    }
    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        check_handed_over(&self.path, self.size(), data, crc32c)?;
        self.append(data)
    }
    /// A table is of no use before it is whole: nothing is handed over.
    fn flush(&mut self) -> Result<()> {
        match self.content {
            Content::Failed | Content::Closed => Err(self.unusable("flush")),
            _ => Ok(()),
        }
    }
    fn sync(&mut self) -> Result<()> {
        self.upload("sync")
    }
    fn size(&self) -> u64 {
        match &self.content {
            Content::Remote(object) => object.size(),
            Content::Staged { staging, .. } => staging.size(),
            Content::Failed | Content::Closed => 0,
        }
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        self.change("truncate", |staging| staging.truncate(size))
    }
    fn close(&mut self) -> Result<()> {
        if matches!(self.content, Content::Closed) {
            return Ok(());
        }
        self.upload("close")?;
        if let Content::Staged { staging, .. } = std::mem::replace(&mut self.content, Content::Closed)
            && self.keep
        {
            // The object is there in full: what the cache does not get is fetched.
            let _ = staging.keep(&self.path, &self.key);
        }
        Ok(())
    }
    fn path(&self) -> &Path {
        &self.path
    }
}
