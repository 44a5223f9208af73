//! The remote, with a runtime of its own, and calls that wait for it.

use crate::counters::Counters;
use crate::error::failed;
use crate::options::RemoteOptions;
use bytes::Bytes;
use ironstone_base::hash::hash64;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{Error, Result};
use ironstone_vfs::{Clock, SystemClock};
use opendal::layers::{RetryEvent, RetryLayer, TimeoutLayer};
use opendal::options::{CopyOptions, ReadOptions, WriteOptions};
use opendal::{Buffer, Capability, ErrorKind, Metadata, Operator};
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// What tells one content of an object from another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObjectInfo {
    pub(crate) size: u64,
    /// The remote's own tag, which reads can insist on.
    pub(crate) etag: Option<String>,
    /// A hash of name, size and tag. It is the same after a restart only if the remote gives tags or times.
    pub(crate) identity: u128,
    /// Whether the remote gave a tag or a time. Else two answers on one content differ in their identities.
    pub(crate) tagged: bool,
    /// Seconds since 1970, if the remote says.
    pub(crate) modified_seconds: Option<u64>,
}

/// Reads and writes objects. Clones are the same client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    operator: Operator,
    capability: Capability,
    handle: Handle,
    shared: Arc<ClientShared>,
}

#[derive(Debug)]
struct ClientShared {
    /// `s3://bucket/root/`
    uri: String,
    part_bytes: usize,
    concurrent_parts: usize,
    block_bytes: u32,
    /// Stands for the tags that a remote does not give.
    nonce: u64,
    generation: AtomicU64,
    counters: Arc<Counters>,
}

/// Starts the threads of a client.
pub(crate) fn runtime(threads: usize) -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("ironstone-remote")
        .enable_all()
        .build()
        .map_err(|error| Error::io_message(format!("start the threads of the remote client: {error}")))
}

impl Client {
    pub(crate) fn new(
        operator: Operator,
        options: &RemoteOptions,
        handle: Handle,
        counters: Arc<Counters>,
    ) -> Self {
        let info = operator.info();
        let uri = format!("{}://{}/{}", info.scheme(), info.name(), info.root().trim_start_matches('/'));
        let retried = counters.clone();
        // Each try has its own time limit: the layer that tries again is outside.
        let operator = operator
            .layer(TimeoutLayer::new().with_timeout(options.timeout).with_io_timeout(options.io_timeout))
            .layer(
                RetryLayer::new()
                    .with_max_times(options.retries)
                    .with_min_delay(options.min_retry_delay)
                    .with_max_delay(options.max_retry_delay)
                    .with_jitter()
                    .with_notify(move |_: RetryEvent<'_>| retried.retries.add(1)),
            );
        let clock = SystemClock::new();
        let shared = ClientShared {
            uri,
            part_bytes: options.part_bytes,
            concurrent_parts: options.concurrent_parts,
            block_bytes: options.block_bytes,
            nonce: clock.entropy() ^ clock.now_micros().rotate_left(32),
            generation: AtomicU64::new(0),
            counters,
        };
        let capability = operator.info().capability();
        Self { operator, capability, handle, shared: Arc::new(shared) }
    }

    pub(crate) fn capability(&self) -> &Capability {
        &self.capability
    }
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }
    pub(crate) fn uri(&self, key: &str) -> String {
        format!("{}{key}", self.shared.uri)
    }
    pub(crate) fn failed(&self, act: &str, path: &Path, key: &str, error: &opendal::Error) -> Error {
        failed(act, path, &self.uri(key), error)
    }

    /// Starts `future` on the runtime's threads.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Pending<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let _ = sender.send(future.await); // Nobody waits any more.
        });
        Pending(receiver)
    }

    /// Does `call` with the operator and waits for it. The thread may belong to another runtime, which
    /// `Handle::block_on` would not stand.
    fn wait<T: Send + 'static, F>(&self, call: impl FnOnce(Operator) -> F) -> opendal::Result<T>
    where
        F: Future<Output = opendal::Result<T>> + Send + 'static,
    {
        self.start(call(self.operator.clone())).wait().unwrap_or_else(|| Err(stopped()))
    }

    fn info(&self, key: &str, metadata: &Metadata) -> ObjectInfo {
        let size = metadata.content_length();
        // Lists and single answers may quote it differently.
        let etag = metadata.etag().map(str::to_owned);
        let modified = metadata.last_modified().map(opendal::raw::Timestamp::into_inner);
        let tag = match (&etag, metadata.version(), modified) {
            (Some(etag), ..) => format!("etag {}", etag.trim_matches('"')),
            (None, Some(version), _) => format!("version {version}"),
            (None, None, Some(time)) => format!("time {}", time.as_nanosecond()),
            (None, None, None) => {
                let generation = self.shared.generation.fetch_add(1, Ordering::Relaxed);
                format!("seen {:x} {generation}", self.shared.nonce)
            }
        };
        let text = format!("{}\n{size}\n{tag}\n{}", self.uri(key), self.shared.block_bytes);
        let half = |seed: u64| u128::from(hash64(text.as_bytes(), seed));
        ObjectInfo {
            size,
            tagged: etag.is_some() || metadata.version().is_some() || modified.is_some(),
            etag,
            identity: half(0) << 64 | half(1),
            modified_seconds: modified.and_then(|time| u64::try_from(time.as_second()).ok()),
        }
    }

    /// What is at `key`; `None` for nothing.
    pub(crate) fn stat(&self, path: &Path, key: &str) -> Result<Option<ObjectInfo>> {
        self.counters().stats.add(1);
        let name = key.to_owned();
        match self.wait(|operator| async move { operator.stat(&name).await }) {
            Ok(metadata) if metadata.is_dir() => Ok(None),
            Ok(metadata) => Ok(Some(self.info(key, &metadata))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("size up", path, key, &error)),
        }
    }

    /// The objects whose names start with `prefix`, a directory that ends with `/` or is empty: what follows it in
    /// their names, and what they are if the list says it for sure.
    pub(crate) fn list(
        &self,
        path: &Path,
        prefix: &str,
        recursive: bool,
    ) -> Result<Vec<(String, Option<ObjectInfo>)>> {
        self.counters().lists.add(1);
        let name = if prefix.is_empty() { "/".to_owned() } else { prefix.to_owned() };
        let listed =
            self.wait(|operator| async move { operator.list_with(&name).recursive(recursive).await });
        let entries = match listed {
            Ok(entries) => entries,
            // File systems, unlike object stores, have directories that can be missing.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.failed("list", path, prefix, &error)),
        };
        let known =
            |key: &str, metadata: &Metadata| metadata.etag().is_some().then(|| self.info(key, metadata));
        Ok(entries
            .iter()
            .filter(|entry| !entry.metadata().is_dir())
            .filter_map(|entry| {
                let rest = entry.path().strip_prefix(prefix)?;
                Some((rest.to_owned(), known(entry.path(), entry.metadata())))
            })
            .collect())
    }

    /// Removes an object; fine if there is none.
    pub(crate) fn delete(&self, path: &Path, key: &str) -> Result<()> {
        self.counters().deletes.add(1);
        let name = key.to_owned();
        self.wait(|operator| async move { operator.delete(&name).await })
            .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .map_err(|error| self.failed("remove", path, key, &error))
    }

    /// The same, in the background; `done` is called in the end.
    pub(crate) fn delete_later(&self, key: String, done: impl FnOnce() + Send + 'static) {
        self.counters().deletes.add(1);
        let operator = self.operator.clone();
        self.handle.spawn(async move {
            // What stays behind is a table that no MANIFEST names, and is removed when the database is opened.
            let _ = operator.delete(&key).await;
            done();
        });
    }

    /// Reads `range` of an object, which must have it.
    pub(crate) async fn read(
        &self,
        key: &str,
        range: Range<u64>,
        etag: Option<&str>,
    ) -> opendal::Result<Buffer> {
        self.counters().reads.add(1);
        let len = range.end - range.start;
        let options = ReadOptions {
            range: range.into(),
            if_match: etag.filter(|_| self.capability.read_with_if_match).map(str::to_owned),
            ..ReadOptions::default()
        };
        let bytes = self.operator.read_options(key, options).await?;
        if bytes.len() as u64 != len {
            let what = format!("{} bytes came where {len} were asked for", bytes.len());
            return Err(opendal::Error::new(ErrorKind::Unexpected, what));
        }
        self.counters().read_bytes.add(len);
        Ok(bytes)
    }

    /// Reads a whole small object; `None` if there is none.
    pub(crate) fn read_small(&self, path: &Path, key: &str) -> Result<Option<Vec<u8>>> {
        let name = key.to_owned();
        match self.wait(|operator| async move { operator.read(&name).await }) {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", path, key, &error)),
        }
    }

    /// Writes a small object, if there is none or the remote cannot tell. Answers whether it did.
    pub(crate) fn create_small(&self, path: &Path, key: &str, bytes: Vec<u8>) -> Result<bool> {
        let if_not_exists = self.capability.write_with_if_not_exists;
        let options = WriteOptions { if_not_exists, ..WriteOptions::default() };
        let name = key.to_owned();
        match self.wait(|operator| async move { operator.write_options(&name, bytes, options).await }) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::ConditionNotMatch | ErrorKind::AlreadyExists) => {
                Ok(false)
            }
            Err(error) => Err(self.failed("create", path, key, &error)),
        }
    }

    /// Removes a small object if it begins with `start`, but does not wait for long.
    pub(crate) fn delete_if_starts_with(&self, key: &str, start: String, limit: Duration) {
        let (operator, name) = (self.operator.clone(), key.to_owned());
        let removal = async move {
            if operator.read(&name).await?.to_bytes().starts_with(start.as_bytes()) {
                operator.delete(&name).await?;
            }
            Ok::<(), opendal::Error>(())
        };
        // What stays is for the next owner to judge. The time limit starts on a thread of the runtime.
        let _ = self.start(async move { tokio::time::timeout(limit, removal).await }).wait();
    }

    /// Uploads the `size` bytes that `next` gives, piece by piece until it has no more. The object appears
    /// when it is complete; afterwards the remote was asked whether it is.
    pub(crate) fn upload(
        &self,
        path: &Path,
        key: &str,
        size: u64,
        mut next: impl FnMut() -> Result<Option<Vec<u8>>> + Send + 'static,
    ) -> Result<ObjectInfo> {
        if size == 0 && !self.capability.write_can_empty {
            let what =
                format!("write {} ({}): this remote takes no empty objects", path.display(), self.uri(key));
            return Err(Error::not_supported(what));
        }
        let parts = self.capability.write_can_multi && size > self.shared.part_bytes as u64;
        // Remotes take 10,000 parts at most, and may ask for larger ones.
        let least = self.capability.write_multi_min_size.unwrap_or(0).max((size / 9_000) as usize);
        let options = if parts {
            let chunk = Some(self.shared.part_bytes.max(least));
            WriteOptions { chunk, concurrent: self.shared.concurrent_parts, ..WriteOptions::default() }
        } else {
            WriteOptions::default()
        };
        let (operator, name) = (self.operator.clone(), key.to_owned());
        let uploaded = self.start(async move {
            // Pieces come from local files: this thread lends its other tasks to another one meanwhile.
            let mut next = || tokio::task::block_in_place(&mut next);
            if !parts {
                let mut pieces = Vec::new();
                while let Some(piece) = next()? {
                    pieces.push(Bytes::from(piece));
                }
                return Ok(operator.write_options(&name, Buffer::from(pieces), options).await.map(drop));
            }
            let mut writer = match operator.writer_options(&name, options).await {
                Ok(writer) => writer,
                Err(error) => return Ok(Err(error)),
            };
            loop {
                let written = match next() {
                    Ok(Some(piece)) => writer.write(piece).await,
                    Ok(None) => break,
                    Err(error) => {
                        let _ = writer.abort().await; // The first failure is the one to tell.
                        return Err(error);
                    }
                };
                if let Err(error) = written {
                    let _ = writer.abort().await;
                    return Ok(Err(error));
                }
            }
            let closed = writer.close().await.map(drop);
            if closed.is_err() {
                let _ = writer.abort().await;
            }
            Ok(closed)
        });
        uploaded
            .wait()
            .unwrap_or_else(|| Ok(Err(stopped())))?
            .map_err(|error| self.failed("upload", path, key, &error))?;
        let info = self.must_be_complete("upload", path, key, size)?;
        self.counters().uploads.add(1);
        self.counters().upload_bytes.add(size);
        Ok(info)
    }

    /// Copies an object of `size` bytes at the remote, or through this process where the remote cannot.
    pub(crate) fn copy(&self, path: &Path, from: &str, to: &str, size: u64) -> Result<ObjectInfo> {
        self.counters().copies.add(1);
        let part = (self.shared.part_bytes as u64).max(size / 9_000 + 1);
        if !self.capability.copy {
            let (client, source, place) = (self.clone(), from.to_owned(), path.to_owned());
            let mut at = 0;
            return self.upload(path, to, size, move || {
                if at == size {
                    return Ok(None);
                }
                let range = at..size.min(at + part);
                at = range.end;
                let read = client.handle.block_on(client.read(&source, range, None));
                let bytes = read.map_err(|error| client.failed("read", &place, &source, &error))?;
                Ok(Some(bytes.to_vec()))
            });
        }
        let (source, target) = (from.to_owned(), to.to_owned());
        let options = CopyOptions { source_content_length_hint: Some(size), ..CopyOptions::default() };
        self.wait(|operator| async move { operator.copy_options(&source, &target, options).await.map(drop) })
            .map_err(|error| self.failed(&format!("copy to {}:", self.uri(to)), path, from, &error))?;
        self.must_be_complete("copy", path, to, size)
    }

    /// Renames an object, where the remote can.
    pub(crate) fn rename(&self, path: &Path, from: &str, to: &str, size: u64) -> Result<ObjectInfo> {
        let (source, target) = (from.to_owned(), to.to_owned());
        self.wait(|operator| async move { operator.rename(&source, &target).await })
            .map_err(|error| self.failed(&format!("rename to {}:", self.uri(to)), path, from, &error))?;
        self.must_be_complete("rename", path, to, size)
    }

    fn must_be_complete(&self, act: &str, path: &Path, key: &str, size: u64) -> Result<ObjectInfo> {
        let what = match self.stat(path, key)? {
            Some(info) if info.size == size => return Ok(info),
            Some(info) => format!("the object has {} bytes instead of {size}", info.size),
            None => format!("the object of {size} bytes is not there"),
        };
        Err(self.failed(act, path, key, &opendal::Error::new(ErrorKind::Unexpected, what)))
    }
}

/// What was started, for one who waits.
pub(crate) struct Pending<T>(mpsc::Receiver<T>);

impl<T> Pending<T> {
    /// `None` if the runtime was stopped before there was an answer.
    pub(crate) fn wait(self) -> Option<T> {
        self.0.recv().ok()
    }
    /// The same, within `limit`; `None` if there is no answer by then.
    pub(crate) fn wait_for(self, limit: Duration) -> Option<Option<T>> {
        match self.0.recv_timeout(limit) {
            Ok(answer) => Some(Some(answer)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(None),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
        }
    }
}

pub(crate) fn stopped() -> opendal::Error {
    opendal::Error::new(ErrorKind::Unexpected, "the remote client was stopped")
}
