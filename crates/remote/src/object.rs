//! An object that is open, and what is known of others.
//!
//! A local file outlives its name while it is open; an object does not. So an object that is removed while it is
//! open stays until it is closed, hidden, and one that is replaced is copied aside first.

use crate::block_cache::{BlockCache, BlockKey, Fetched};
use crate::client::{Client, ObjectInfo};
use crate::counters::Counters;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Condvar, Mutex, Weak};
use ironstone_base::{Error, Result};
use opendal::Buffer;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::RwLock;

/// Objects that were replaced while they were open, until they are closed: a directory beside them.
const ASIDE: &str = ".aside/";

/// How long a file system that goes away waits for removals that it has begun.
const LAST_REMOVALS: Duration = Duration::from_secs(5);

/// All objects.
pub(crate) struct Objects {
    pub(crate) client: Client,
    pub(crate) cache: BlockCache,
    pub(crate) block_bytes: u32,
    pub(crate) counters: Arc<Counters>,
    next_aside: AtomicU64,
    names: Mutex<Names>,
    /// A removal has ended.
    removed: Condvar,
}

#[derive(Default)]
struct Names {
    /// What uploads, lists and questions told. An object that another host removed stays in it.
    known: HashMap<String, ObjectInfo>,
    /// An object that is got from here must not be dropped under the lock.
    open: HashMap<String, Weak<Object>>,
    /// Removed, but open or on their way out: as good as not there. Nothing may be written there before they are gone.
    condemned: HashSet<String>,
}

/// An object that is open.
pub(crate) struct Object {
    objects: Arc<Objects>,
    /// Where it was opened.
    pub(crate) path: PathBuf,
    /// Its name, which changes when it is set aside. Reads hold it shared.
    key: RwLock<String>,
    pub(crate) info: ObjectInfo,
}

impl Objects {
    pub(crate) fn new(client: Client, cache: BlockCache, block_bytes: u32, counters: Arc<Counters>) -> Self {
        let (names, removed) = (Mutex::default(), Condvar::new());
        Self { client, cache, block_bytes, counters, next_aside: AtomicU64::new(0), names, removed }
    }

    /// What is at `key`.
    pub(crate) fn find(&self, path: &Path, key: &str) -> Result<Option<ObjectInfo>> {
        {
            let names = self.names.lock();
            if names.is_hidden(key) {
                return Ok(None);
            }
            if let Some(info) = names.known.get(key) {
                return Ok(Some(info.clone()));
            }
        }
        self.find_now(path, key)
    }

    /// The same, asking the remote in any case.
    pub(crate) fn find_now(&self, path: &Path, key: &str) -> Result<Option<ObjectInfo>> {
        let found = self.client.stat(path, key)?;
        let mut names = self.names.lock();
        if names.is_hidden(key) {
            return Ok(None);
        }
        match &found {
            // Where the remote gives no tags, two answers on one object differ: the first one stays.
            Some(info) => Ok(Some(names.learn(key, info.clone()))),
            None => {
                names.known.remove(key);
                Ok(None)
            }
        }
    }

    /// The names of the objects in a directory that satisfy `wanted`.
    pub(crate) fn list(
        &self,
        path: &Path,
        prefix: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>> {
        let listed = self.client.list(path, prefix, false)?;
        let mut names = self.names.lock();
        let mut found = Vec::new();
        for (name, info) in listed {
            let key = format!("{prefix}{name}");
            if !wanted(&name) || names.is_hidden(&key) {
                continue;
            }
            if let Some(info) = info {
                names.learn(&key, info);
            }
            found.push(name);
        }
        Ok(found)
    }

    /// Opens what is at `key`, if there is anything.
    pub(crate) fn open(self: &Arc<Self>, path: &Path, key: &str) -> Result<Option<Arc<Object>>> {
        let open = {
            let names = self.names.lock();
            names.open_object(key).filter(|_| !names.is_hidden(key))
        };
        if open.is_some() {
            return Ok(open);
        }
        let Some(info) = self.find(path, key)? else { return Ok(None) };
        let object = Arc::new(Object {
            objects: self.clone(),
            path: path.to_owned(),
            key: RwLock::new(key.to_owned()),
            info,
        });
        let mut names = self.names.lock();
        let faster = names.open_object(key);
        let removed = names.is_hidden(key); // Meanwhile.
        if faster.is_none() && !removed {
            names.open.insert(key.to_owned(), Arc::downgrade(&object));
        }
        drop(names); // Before an object that is not used.
        Ok(if removed { None } else { Some(faster.unwrap_or(object)) })
    }

    /// Removes what is at `key`, now or when it is closed. Fine if there is nothing.
    pub(crate) fn remove(&self, path: &Path, key: &str) -> Result<()> {
        let (open, known) = {
            let mut names = self.names.lock();
            let open = names.open_object(key);
            if open.is_some() {
                names.condemned.insert(key.to_owned());
            } else if names.is_hidden(key) {
                return Ok(());
            }
            (open, names.known.remove(key))
        };
        if open.is_some() {
            return Ok(()); // If this was its last use, it is removed here.
        }
        self.client.delete(path, key)?;
        if let Some(info) = known {
            self.cache.forget(info.identity, self.block_count(info.size));
        }
        Ok(())
    }

    /// Makes `key` free to be written: nothing that is open there, and no removal on its way.
    pub(crate) fn make_way(self: &Arc<Self>, path: &Path, key: &str) -> Result<()> {
        let (open, known) = {
            let mut names = self.names.lock();
            loop {
                let open = names.open_object(key);
                if open.is_some() || !names.is_hidden(key) {
                    break (open, names.known.remove(key));
                }
                self.removed.wait(&mut names);
            }
        };
        match (open, known) {
            (Some(object), _) => self.set_aside(path, key, &object),
            (None, Some(info)) => {
                self.cache.forget(info.identity, self.block_count(info.size));
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// Lets an open object go on under another name, so that something else can be written at `key`.
    fn set_aside(self: &Arc<Self>, path: &Path, key: &str, object: &Arc<Object>) -> Result<()> {
        let number = self.next_aside.fetch_add(1, Ordering::Relaxed);
        let directory = key.rfind('/').map_or("", |slash| &key[..=slash]);
        let aside = format!("{directory}{ASIDE}{:032x}-{number}", object.info.identity);
        if let Err(error) = self.client.copy(path, key, &aside, object.info.size) {
            let _ = self.client.delete(path, &aside); // The first failure is the one to tell.
            return Err(error);
        }
        let (place, holder) = (aside.clone(), object.clone());
        // Waits for the reads that are on their way, and keeps later ones from the old name.
        self.client.start(async move { *holder.key.write().await = place }).wait();
        let mut names = self.names.lock();
        names.open.remove(key);
        names.open.insert(aside.clone(), Arc::downgrade(object));
        names.condemned.remove(key);
        names.condemned.insert(aside);
        Ok(())
    }

    /// Removes what an earlier process had set aside in a directory.
    pub(crate) fn remove_aside(&self, path: &Path, directory: &str) -> Result<()> {
        let aside = format!("{directory}{ASIDE}");
        for (name, _) in self.client.list(path, &aside, false)? {
            let key = format!("{aside}{name}");
            if !self.names.lock().is_hidden(&key) {
                self.client.delete(path, &key)?;
            }
        }
        Ok(())
    }

    /// What an upload, a copy or a rename made.
    pub(crate) fn note(&self, key: &str, info: ObjectInfo) {
        self.names.lock().known.insert(key.to_owned(), info);
    }
    /// Whether somebody has `key` open.
    pub(crate) fn is_open(&self, key: &str) -> bool {
        self.names.lock().open.get(key).is_some_and(|object| object.strong_count() > 0)
    }
    pub(crate) fn block_count(&self, size: u64) -> u64 {
        size.div_ceil(u64::from(self.block_bytes))
    }

    /// Waits a little for removals that have begun.
    pub(crate) fn finish_removals(&self) {
        let mut names = self.names.lock();
        while !names.condemned.is_empty() {
            if self.removed.wait_for(&mut names, LAST_REMOVALS).timed_out() {
                return; // They are found when the database is opened.
            }
        }
    }
}

impl Names {
    fn open_object(&self, key: &str) -> Option<Arc<Object>> {
        self.open.get(key).and_then(Weak::upgrade)
    }
    fn is_hidden(&self, key: &str) -> bool {
        self.condemned.contains(key)
    }
    /// Notes what is at `key`; answers what is to be believed.
    fn learn(&mut self, key: &str, info: ObjectInfo) -> ObjectInfo {
        match self.known.get(key) {
            // Where the remote gives no tags, the first answer stays.
            Some(known) if known.size == info.size && !known.tagged && !info.tagged => known.clone(),
            _ => {
                self.known.insert(key.to_owned(), info.clone());
                info
            }
        }
    }
}

impl Object {
    pub(crate) fn size(&self) -> u64 {
        self.info.size
    }
    pub(crate) fn block(&self, index: u64) -> BlockKey {
        BlockKey { identity: self.info.identity, index }
    }
    pub(crate) fn cache(&self) -> &BlockCache {
        &self.objects.cache
    }
    pub(crate) fn client(&self) -> &Client {
        &self.objects.client
    }
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.objects.block_bytes)
    }
    /// Where block `index` ends.
    fn block_end(&self, index: u64) -> u64 {
        (index + 1).saturating_mul(self.block_bytes()).min(self.info.size)
    }

    /// Reads bytes that the object has.
    pub(crate) async fn fetch(self: Arc<Self>, start: u64, end: u64) -> Result<Buffer> {
        let key = self.key.read().await;
        let read = self.client().read(&key, start..end, self.info.etag.as_deref()).await;
        read.map_err(|error| {
            let act = format!("read {} bytes at {start} of", end - start);
            self.client().failed(&act, &self.path, &key, &error)
        })
    }

    /// Gives block `index`, from the cache or through it.
    pub(crate) async fn fetch_block(self: Arc<Self>, index: u64) -> Result<Fetched> {
        let (start, end) = (index * self.block_bytes(), self.block_end(index));
        self.cache().get_or_fetch(self.block(index), self.clone().fetch(start, end)).await
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let (objects, key) = (self.objects.clone(), std::mem::take(self.key.get_mut()));
        {
            let mut names = objects.names.lock();
            // Another value may be there by now.
            if names.open.get(&key).is_some_and(|object| object.strong_count() == 0) {
                names.open.remove(&key);
            } else {
                return;
            }
            if !names.is_hidden(&key) {
                return;
            }
        }
        objects.cache.forget(self.info.identity, objects.block_count(self.info.size));
        let (client, name) = (objects.client.clone(), key.clone());
        client.delete_later(key, move || {
            objects.names.lock().condemned.remove(&name);
            objects.removed.notify_all();
        });
    }
}

/// The failure of one who waited for a client that was stopped.
pub(crate) fn answer<T>(pending: Option<Result<T>>) -> Result<T> {
    pending.unwrap_or_else(|| Err(Error::io_message("the remote client was stopped")))
}
