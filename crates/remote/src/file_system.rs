//! The file system that sends tables one way and all other files the other.

use crate::block_cache::BlockCache;
use crate::client::{Client, runtime};
use crate::counters::{Counters, RemoteCounters};
use crate::error::{missing, refused};
use crate::object::{Object, Objects};
use crate::options::RemoteOptions;
use crate::owner::{OWNER_FILE, OwnedLock};
use crate::routing::Routing;
use crate::table_reader::{RemoteRandomAccessFile, RemoteSequentialFile};
use crate::table_writer::RemoteWritableFile;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileKind, Result};
use ironstone_vfs::{
    Access, Directory, FileLock, FileSystem, OpenHints, RandomAccessFile, SequentialFile, WritableFile,
    WriteOptions,
};
use opendal::Operator;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many blocks are fetched ahead at the same time.
const READS_AHEAD: usize = 16;

/// A file system whose tables are objects. Clones are the same file system.
///
/// A table below [`RemoteOptions::root`] appears, whole and durable, when it was first synced or closed. It cannot be
/// changed in place: what is appended later uploads it again. Everything else goes to the local file system.
#[derive(Clone)]
pub struct RemoteFileSystem {
    shared: Arc<Shared>,
}

/// What files that are open keep alive.
pub(crate) struct Shared {
    local: Arc<dyn FileSystem>,
    routing: Routing,
    objects: Arc<Objects>,
    options: RemoteOptions,
    reads_ahead: Arc<Semaphore>,
    /// There until it is dropped.
    runtime: Option<Runtime>,
    _cache_lock: Box<dyn FileLock>,
}

impl Shared {
    pub(crate) fn readahead_bytes(&self) -> u64 {
        self.options.readahead_bytes
    }
    /// `None` if enough is being fetched.
    pub(crate) fn permit_to_read_ahead(&self) -> Option<OwnedSemaphorePermit> {
        self.reads_ahead.clone().try_acquire_owned().ok()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.objects.finish_removals();
        self.objects.cache.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // Waiting is refused on threads of other runtimes.
        }
    }
}

impl fmt::Debug for RemoteFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFileSystem({}, {:?})", self.shared.objects.client.uri(""), self.shared.local)
    }
}

/// Where a file is.
enum Place {
    Local,
    /// The name of the object.
    Remote(String),
}

impl RemoteFileSystem {
    /// Tables go to `operator`, all other files to `local`. The operator needs no layers: time limits and further
    /// tries are added as the options say. Asks nothing of the remote yet.
    ///
    /// # Errors
    /// `InvalidArgument` for options that cannot be; `NotSupported` if the operator cannot read, write, list, remove
    /// and size up; `IoError` if the root or the cache's directory cannot be made, or another process uses the cache.
    pub fn new(local: Arc<dyn FileSystem>, operator: Operator, options: RemoteOptions) -> Result<Self> {
        options.check()?;
        opendal::install_default(); // The HTTP client, where a feature brings one. Calling it again does nothing.
        let counters = Arc::new(Counters::default());
        let capability = operator.info().capability();
        let needed = [
            (capability.stat, "stat"),
            (capability.read, "read"),
            (capability.write, "write"),
            (capability.delete, "delete"),
            (capability.list, "list"),
        ];
        if let Some((_, what)) = needed.iter().find(|(has, _)| !has) {
            let scheme = operator.info().scheme();
            return Err(Error::not_supported(format!(
                "tables on {scheme}: its OpenDAL service has no {what}"
            )));
        }
        let routing = Routing::new(local.clone(), &options.root, &options.prefix)?;
        let (cache, lock) = BlockCache::open(
            local.clone(),
            &options.cache_dir,
            options.cache_bytes,
            options.block_bytes,
            counters.clone(),
        )?;
        let runtime = runtime(options.io_threads)?;
        let client = Client::new(operator, &options, runtime.handle().clone(), counters.clone());
        let objects = Arc::new(Objects::new(client, cache, options.block_bytes, counters));
        let shared = Shared {
            local,
            routing,
            objects,
            options,
            reads_ahead: Arc::new(Semaphore::new(READS_AHEAD)),
            runtime: Some(runtime),
            _cache_lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What was done so far.
    pub fn counters(&self) -> RemoteCounters {
        self.shared.objects.counters.snapshot()
    }

    /// The address of the object that `path` is, for people; `None` if it is a local file.
    pub fn uri(&self, path: &Path) -> Result<Option<String>> {
        Ok(self.shared.routing.table(path)?.map(|key| self.shared.objects.client.uri(&key)))
    }

    fn local(&self) -> &dyn FileSystem {
        &*self.shared.local
    }
    fn objects(&self) -> &Arc<Objects> {
        &self.shared.objects
    }

    /// Where a new file at `path` goes.
    fn place(&self, path: &Path) -> Result<Place> {
        Ok(self.shared.routing.table(path)?.map_or(Place::Local, Place::Remote))
    }

    /// Where the file at `path` is. Tables that were there before the remote was used are local.
    fn find(&self, path: &Path) -> Result<Place> {
        let Some(key) = self.shared.routing.table(path)? else { return Ok(Place::Local) };
        if self.objects().find(path, &key)?.is_none() && self.local().exists(path)? {
            return Ok(Place::Local);
        }
        Ok(Place::Remote(key))
    }

    fn open(&self, act: &str, path: &Path, key: &str) -> Result<Arc<Object>> {
        self.objects().open(path, key)?.ok_or_else(|| self.no_object(act, path, key))
    }

    #[cold]
    fn no_object(&self, act: &str, path: &Path, key: &str) -> Error {
        let error = missing(act, path);
        let message = format!("{} ({})", error.message(), self.objects().client.uri(key));
        Error::new(error.code(), message).with_sub_code(error.sub_code())
    }

    #[cold]
    fn not_linkable(&self, from: &Path, to: &Path, key: &str) -> Error {
        Error::not_supported(format!(
            "link {} to {}: one of them is {}, the other a local file",
            from.display(),
            to.display(),
            self.objects().client.uri(key)
        ))
    }

    fn size_of(&self, act: &str, path: &Path, key: &str) -> Result<u64> {
        let info = self.objects().find(path, key)?;
        info.map(|info| info.size).ok_or_else(|| self.no_object(act, path, key))
    }

    fn check_parent(&self, act: &str, path: &Path) -> Result<()> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if self.local().exists(parent.unwrap_or(Path::new(".")))? { Ok(()) } else { Err(missing(act, path)) }
    }

    fn writer(&self, path: &Path, key: String) -> RemoteWritableFile {
        RemoteWritableFile::create(self.objects().clone(), path, key, self.shared.options.cache_new_tables)
    }

    /// Copies a file through this process, durably.
    fn copy_through(&self, from: &Path, to: &Path) -> Result<()> {
        let mut source = self.open_sequential(from)?;
        let mut target = self.create(to, WriteOptions::default())?;
        let mut chunk = vec![0; 1 << 20];
        loop {
            let count = source.read(&mut chunk)?;
            if count == 0 {
                break;
            }
            target.append(&chunk[..count])?;
        }
        target.sync()?;
        target.close()
    }

    fn rename_object(&self, from: &Path, to: &Path, source: &str, target: &str) -> Result<()> {
        self.check_parent("rename", to)?;
        let size = self.size_of(&format!("rename to {}:", to.display()), from, source)?;
        if source == target {
            return Ok(());
        }
        let (objects, client) = (self.objects(), &self.objects().client);
        objects.make_way(to, target)?;
        if client.capability().rename && !objects.is_open(source) {
            let info = client.rename(from, source, target, size)?;
            objects.make_way(from, source)?; // Forgets what was known.
            objects.note(target, info);
            return Ok(());
        }
        let info = client.copy(from, source, target, size)?;
        objects.note(target, info);
        objects.remove(from, source)
    }

    /// Renames a directory: first a copy of its tables, then the local directory, which is the moment that counts, then
    /// the old tables are removed. A crash in between leaves objects that the one or the other name lists.
    fn rename_directory(&self, from: &Path, to: &Path, source: &str) -> Result<()> {
        let (objects, client) = (self.objects(), &self.objects().client);
        let is_table = |name: &str| Routing::is_table_name(name.rsplit('/').next().unwrap_or(name));
        let mut tables = client.list(from, source, true)?;
        tables.retain(|(name, _)| is_table(name));
        if tables.is_empty() {
            return self.local().rename(from, to);
        }
        let Some(target) = self.shared.routing.directory(to)? else {
            return Err(Error::not_supported(format!(
                "rename {} to {}: it holds tables at {}, and the new name is outside of {}",
                from.display(),
                to.display(),
                client.uri(source),
                self.shared.options.root.display()
            )));
        };
        if self.local().exists(to)? {
            return Err(refused(&format!("rename to {}:", to.display()), from, io::ErrorKind::AlreadyExists));
        }
        let moved = tables.iter().try_for_each(|(name, _)| {
            let (old, new) = (format!("{source}{name}"), format!("{target}{name}"));
            let size = self.size_of("rename", &from.join(name), &old)?;
            objects.make_way(&to.join(name), &new)?;
            let info = client.copy(&from.join(name), &old, &new, size)?;
            objects.note(&new, info);
            Ok(())
        });
        if let Err(error) = moved.and_then(|()| self.local().rename(from, to)) {
            for (name, _) in &tables {
                let _ = objects.remove(&to.join(name), &format!("{target}{name}")); // The first failure is told.
            }
            return Err(error);
        }
        for (name, _) in &tables {
            // What stays is in a directory that is not there any more, and costs no more than its space.
            let _ = objects.remove(&from.join(name), &format!("{source}{name}"));
        }
        Ok(())
    }

    fn is_local_directory(&self, path: &Path) -> bool {
        let file = path.file_name().and_then(|name| name.to_str()).and_then(FileKind::parse).is_some();
        !file && self.local().open_directory(path).is_ok()
    }
}

impl FileSystem for RemoteFileSystem {
    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> {
        let Place::Remote(key) = self.find(path)? else { return self.local().open_sequential(path) };
        let object = self.open("open", path, &key)?;
        let file = RemoteRandomAccessFile::new(self.shared.clone(), path, object, true);
        Ok(Box::new(RemoteSequentialFile::new(file)))
    }

    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        let Place::Remote(key) = self.find(path)? else { return self.local().open_random(path, hints) };
        let object = self.open("open", path, &key)?;
        let sequential = hints.access == Access::Sequential;
        Ok(Box::new(RemoteRandomAccessFile::new(self.shared.clone(), path, object, sequential)))
    }

    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let Place::Remote(key) = self.place(path)? else { return self.local().create(path, options) };
        self.check_parent("create", path)?;
        Ok(Box::new(self.writer(path, key)))
    }

    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let Place::Remote(key) = self.find(path)? else { return self.local().append_to(path, options) };
        self.check_parent("open to append to", path)?;
        let keep = self.shared.options.cache_new_tables;
        Ok(Box::new(match self.objects().open(path, &key)? {
            Some(object) => RemoteWritableFile::append_to(self.objects().clone(), path, key, object, keep),
            None => self.writer(path, key),
        }))
    }

    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let (from, to) = (self.find(old)?, self.place(new)?);
        if let Place::Remote(key) = &from {
            self.size_of("reuse", old, key)?;
        }
        if let (Place::Local, Place::Local) = (from, to) {
            return self.local().reuse(old, new, options);
        }
        let (old, new) = (old.display(), new.display());
        Err(Error::not_supported(format!(
            "reuse {old} as {new}: tables on a remote file system are not overwritten"
        )))
    }

    fn open_directory(&self, path: &Path) -> Result<Box<dyn Directory>> {
        self.local().open_directory(path) // Objects are durable, names included, when they are synced.
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        if let Place::Remote(key) = self.place(path)?
            && self.objects().find_now(path, &key)?.is_some()
        {
            return Ok(true);
        }
        self.local().exists(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let mut names = self.local().list(path)?;
        if let Some(directory) = self.shared.routing.directory(path)? {
            names.retain(|name| name != OWNER_FILE);
            let tables = self.objects().list(path, &directory, Routing::is_table_name)?;
            names.extend(tables);
            names.sort();
            names.dedup();
        }
        Ok(names)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let Place::Remote(key) = self.place(path)? else { return self.local().remove(path) };
        self.objects().remove(path, &key)?;
        match self.local().remove(path) {
            // An object that is gone is as good as removed.
            Err(error) if error.is_path_not_found() => self.check_parent("remove", path),
            removed => removed,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        match (self.find(from)?, self.place(to)?) {
            (Place::Remote(source), Place::Remote(target)) => self.rename_object(from, to, &source, &target),
            (Place::Local, Place::Local) => {
                if self.is_local_directory(from)
                    && let Some(source) = self.shared.routing.directory(from)?
                {
                    return self.rename_directory(from, to, &source);
                }
                self.local().rename(from, to)
            }
            (Place::Remote(source), Place::Local) => {
                self.size_of(&format!("rename to {}:", to.display()), from, &source)?;
                self.copy_through(from, to)?;
                self.remove(from)
            }
            // Also a table that was here before, from one name that would be remote to another.
            (Place::Local, Place::Remote(_)) => {
                self.copy_through(from, to)?;
                self.local().remove(from)
            }
        }
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        match (self.find(from)?, self.place(to)?) {
            (Place::Local, Place::Local) => self.local().link(from, to),
            (Place::Remote(source), Place::Remote(target)) => {
                self.check_parent("link", to)?;
                let act = format!("link to {}:", to.display());
                let size = self.size_of(&act, from, &source)?;
                if self.exists(to)? {
                    return Err(refused(&act, from, io::ErrorKind::AlreadyExists));
                }
                // Objects have one name; tables never change, so that a copy is as good.
                self.objects().make_way(to, &target)?;
                let info = self.objects().client.copy(from, &source, &target, size)?;
                self.objects().note(&target, info);
                Ok(())
            }
            (Place::Remote(key), Place::Local) => {
                self.size_of("link", from, &key)?;
                Err(self.not_linkable(from, to, &key))
            }
            (Place::Local, Place::Remote(key)) => Err(self.not_linkable(from, to, &key)),
        }
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.local().create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        if let Some(directory) = self.shared.routing.directory(path)?
            && let Ok(names) = self.local().list(path)
        {
            if !self.objects().list(path, &directory, Routing::is_table_name)?.is_empty() {
                return Err(refused("remove directory", path, io::ErrorKind::DirectoryNotEmpty));
            }
            if names == [OWNER_FILE] {
                self.local().remove(&path.join(OWNER_FILE))?;
            }
        }
        self.local().remove_dir(path)
    }

    fn size(&self, path: &Path) -> Result<u64> {
        match self.find(path)? {
            Place::Local => self.local().size(path),
            Place::Remote(key) => self.size_of("size up", path, &key),
        }
    }

    /// `NotSupported` for a table if the remote does not say.
    fn modified_seconds(&self, path: &Path) -> Result<u64> {
        let Place::Remote(key) = self.find(path)? else { return self.local().modified_seconds(path) };
        let info =
            self.objects().find(path, &key)?.ok_or_else(|| self.no_object("read the time of", path, &key))?;
        info.modified_seconds.ok_or_else(|| {
            let uri = self.objects().client.uri(&key);
            Error::not_supported(format!(
                "read the time of {} ({uri}): the remote does not say",
                path.display()
            ))
        })
    }

    /// That of the local file system: it bounds the log, and tables while they are written.
    fn free_space(&self, path: &Path) -> Result<u64> {
        self.local().free_space(path)
    }

    /// For the `LOCK` of a database below the root, the remote knows the owner too: see `docs/remote.md`, "One host".
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let lock = self.local().lock(path)?;
        let is_database = path.file_name().and_then(|name| name.to_str()).and_then(FileKind::parse);
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (Some(FileKind::Lock), Some(directory)) = (is_database, self.shared.routing.directory(dir)?)
        else {
            return Ok(lock);
        };
        let client = self.objects().client.clone();
        let lock = if self.shared.options.owner_object {
            Box::new(OwnedLock::claim(client, self.local(), dir, &directory, lock)?)
        } else {
            lock
        };
        self.objects().remove_aside(dir, &directory)?;
        Ok(lock)
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.local().absolute(path)
    }

    fn truncate(&self, path: &Path, size: u64) -> Result<()> {
        match self.find(path)? {
            Place::Local => self.local().truncate(path, size),
            Place::Remote(key) => {
                self.size_of("truncate", path, &key)?;
                let mut file = self.append_to(path, WriteOptions::default())?;
                file.truncate(size)?;
                file.close()
            }
        }
    }
}
