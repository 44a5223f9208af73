//! Engines that are reached through a table of C functions, see `shim/shim.h`.
//!
//! # Safety argument
//! 1. `Api`, `RawSetup`, `RawBytes` and `RawRecord` have the fields of their namesakes in `shim.h`, in that order, with
//!    C's layout; each table is a constant that a shim defines, and those of its functions that are not in an `Option` are there.
//! 2. A database or session pointer comes from a successful `open` or `open_session` and goes back once, when its owner
//!    is dropped. A session borrows its database, so the database is closed after all of its sessions.
//! 3. Each engine allows its database to be used by many threads at once; a session stays with the thread that has it.
//! 4. Byte ranges that go in are borrowed for the call; those that come out live until the visitor returns, and it only
//!    looks at them or copies them.
//! 5. The visitor's context is the `Sink` that this file passed in, exclusively borrowed for the call. It does not panic
//!    (it adds, wrapping, or appends), so nothing unwinds into C.
//! 6. `error` has `ERROR_BYTES` bytes, more than a shim writes to, and starts as zeros.

use super::{Compression, Direction, Engine, Result, Scan, Session, Setup, Sink};
use crate::data::Key;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

const DONE: c_int = 0;
const ABSENT: c_int = 1;
const ERROR_BYTES: usize = 512;

#[repr(C)]
struct RawSetup {
    cache_bytes: u64,
    memory_bytes: u64,
    shared_bytes: u64,
    table_bytes: u64,
    most_bytes: u64,
    bloom_bits: u32,
    background_jobs: u32,
    prefix_bytes: u32,
    lz4: u8,
    sync: u8,
    automatic_compaction: u8,
    counters: u8,
    open_later: u8,
    options: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawBytes {
    data: *const c_char,
    size: usize,
}

#[repr(C)]
struct RawRecord {
    key: RawBytes,
    value: RawBytes,
}

type Visit = unsafe extern "C" fn(*mut c_void, RawBytes, RawBytes);
type Error = [c_char; ERROR_BYTES];

/// The functions of an engine.
#[repr(C)]
pub struct Api {
    version: unsafe extern "C" fn() -> *const c_char,
    open: unsafe extern "C" fn(*const c_char, *const RawSetup, *mut *mut c_void, *mut c_char) -> c_int,
    close: unsafe extern "C" fn(*mut c_void),
    open_session: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_char) -> c_int,
    close_session: unsafe extern "C" fn(*mut c_void),
    put: unsafe extern "C" fn(*mut c_void, RawBytes, RawBytes, *mut c_char) -> c_int,
    put_batch: unsafe extern "C" fn(*mut c_void, *const RawRecord, usize, *mut c_char) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, RawBytes, Visit, *mut c_void, *mut c_char) -> c_int,
    multi_get: Option<
        unsafe extern "C" fn(*mut c_void, *const RawBytes, usize, Visit, *mut c_void, *mut c_char) -> i64,
    >,
    scan: unsafe extern "C" fn(*mut c_void, RawBytes, c_int, u64, Visit, *mut c_void, *mut c_char) -> i64,
    settle: unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int,
    compact: Option<unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int>,
    statistics: unsafe extern "C" fn(*mut c_void, *mut c_char, usize),
    merge: Option<unsafe extern "C" fn(*mut c_void, RawBytes, RawBytes, *mut c_char) -> c_int>,
    remove: Option<unsafe extern "C" fn(*mut c_void, RawBytes, *mut c_char) -> c_int>,
    checkpoint: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_char) -> c_int>,
}

/// The version that the engine says it has.
pub fn version(api: &Api) -> String {
    // SAFETY: the function is there (1) and answers a constant string.
    unsafe { CStr::from_ptr((api.version)()) }.to_string_lossy().into_owned()
}

/// Opens a database.
pub fn open(api: &'static Api, path: &Path, setup: &Setup) -> Result<Box<dyn Engine>> {
    let name = c_path(path)?;
    let options = CString::new(setup.options.as_bytes()).map_err(super::words)?;
    let raw = RawSetup {
        cache_bytes: setup.cache_bytes as u64,
        memory_bytes: setup.memory_bytes as u64,
        shared_bytes: setup.shared_bytes as u64,
        table_bytes: setup.table_bytes.unwrap_or(0),
        most_bytes: setup.most_bytes,
        bloom_bits: setup.bloom_bits,
        background_jobs: setup.background_jobs as u32,
        prefix_bytes: setup.prefix_bytes as u32,
        lz4: u8::from(setup.compression == Compression::Lz4),
        sync: u8::from(setup.sync),
        automatic_compaction: u8::from(setup.automatic_compaction),
        counters: u8::from(setup.counters),
        open_later: u8::from(setup.open_later),
        options: options.as_ptr(),
    };
    let mut db = null_mut();
    let mut error = no_error();
    // SAFETY: (1), (4), (6).
    let code = unsafe { (api.open)(name.as_ptr(), &raw, &mut db, error.as_mut_ptr()) };
    check(code, &error).map_err(|words| format!("{}: {words}", path.display()))?;
    Ok(Box::new(ShimEngine { api, db }))
}

struct ShimEngine {
    api: &'static Api,
    db: *mut c_void,
}

// SAFETY: (3).
unsafe impl Sync for ShimEngine {}

impl Engine for ShimEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let mut session = null_mut();
        let mut error = no_error();
        // SAFETY: the database is open (2); (6).
        let code = unsafe { (self.api.open_session)(self.db, &mut session, error.as_mut_ptr()) };
        check(code, &error)?;
        Ok(Box::new(ShimSession {
            engine: self,
            session,
            keys: Vec::new(),
            records: Vec::new(),
            error: no_error(),
        }))
    }
    fn settle(&self) -> Result<()> {
        let mut error = no_error();
        // SAFETY: (2), (6).
        let code = unsafe { (self.api.settle)(self.db, error.as_mut_ptr()) };
        check(code, &error)
    }
    fn compact(&self) -> Result<()> {
        let compact = self.api.compact.ok_or("the engine has no compaction to start")?;
        let mut error = no_error();
        // SAFETY: (2), (6).
        let code = unsafe { compact(self.db, error.as_mut_ptr()) };
        check(code, &error)
    }
    fn checkpoint(&self, path: &Path) -> Result<()> {
        let checkpoint = self.api.checkpoint.ok_or("this engine's checkpoints are not measured")?;
        let name = c_path(path)?;
        let mut error = no_error();
        // SAFETY: (2), (4), (6).
        let code = unsafe { checkpoint(self.db, name.as_ptr(), error.as_mut_ptr()) };
        check(code, &error)
    }
    fn statistics(&self) -> Vec<(String, String)> {
        let mut text = vec![0; 4096];
        // SAFETY: (2); the shim writes at most `text.len()` bytes, the last of them zero.
        unsafe { (self.api.statistics)(self.db, text.as_mut_ptr(), text.len()) };
        let words = words(&text);
        if words.is_empty() { Vec::new() } else { vec![("engine".to_owned(), words)] }
    }
}

impl Drop for ShimEngine {
    fn drop(&mut self) {
        // SAFETY: (2).
        unsafe { (self.api.close)(self.db) };
    }
}

struct ShimSession<'a> {
    engine: &'a ShimEngine,
    session: *mut c_void,
    /// Used again and again; empty between calls.
    keys: Vec<RawBytes>,
    records: Vec<RawRecord>,
    error: Error,
}

impl Session for ShimSession<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        // SAFETY: (2), (4), (6).
        let code =
            unsafe { (self.engine.api.put)(self.session, raw(key), raw(value), self.error.as_mut_ptr()) };
        check(code, &self.error)
    }
    fn put_batch(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        self.records.clear();
        self.records
            .extend(records.iter().map(|(key, value)| RawRecord { key: raw(key), value: raw(value) }));
        let (first, count) = (self.records.as_ptr(), self.records.len());
        // SAFETY: (2), (4), (6).
        let code =
            unsafe { (self.engine.api.put_batch)(self.session, first, count, self.error.as_mut_ptr()) };
        check(code, &self.error)
    }
    fn merge(&mut self, key: &Key, operand: &[u8]) -> Result<()> {
        let merge = self.engine.api.merge.ok_or("the engine has no merge operators")?;
        // SAFETY: (2), (4), (6).
        let code = unsafe { merge(self.session, raw(key), raw(operand), self.error.as_mut_ptr()) };
        check(code, &self.error)
    }
    fn delete(&mut self, key: &Key) -> Result<()> {
        let remove = self.engine.api.remove.ok_or("this engine's deletes are not measured")?;
        // SAFETY: (2), (4), (6).
        let code = unsafe { remove(self.session, raw(key), self.error.as_mut_ptr()) };
        check(code, &self.error)
    }
    fn get(&mut self, key: &Key, sink: &mut Sink) -> Result<bool> {
        let context = (&raw mut *sink).cast();
        // SAFETY: (2), (4), (5), (6).
        let code = unsafe {
            (self.engine.api.get)(self.session, raw(key), see_value, context, self.error.as_mut_ptr())
        };
        if code == ABSENT { Ok(false) } else { check(code, &self.error).map(|()| true) }
    }
    fn multi_get(&mut self, keys: &[Key], sink: &mut Sink) -> Result<usize> {
        let Some(multi_get) = self.engine.api.multi_get else {
            let mut found = 0;
            for key in keys {
                found += usize::from(self.get(key, sink)?);
            }
            return Ok(found);
        };
        self.keys.clear();
        self.keys.extend(keys.iter().map(|key| raw(key)));
        let context = (&raw mut *sink).cast();
        let (first, count) = (self.keys.as_ptr(), self.keys.len());
        // SAFETY: (2), (4), (5), (6).
        let found =
            unsafe { multi_get(self.session, first, count, see_value, context, self.error.as_mut_ptr()) };
        usize::try_from(found).map_err(|_| words(&self.error))
    }
    fn scan(&mut self, scan: Scan<'_>, sink: &mut Sink) -> Result<u64> {
        let from = scan.from.map_or(RawBytes { data: null(), size: 0 }, |key| raw(key));
        let reverse = c_int::from(scan.direction == Direction::Reverse);
        let context = (&raw mut *sink).cast();
        // SAFETY: (2), (4), (5), (6).
        let seen = unsafe {
            let scan_from = self.engine.api.scan;
            scan_from(self.session, from, reverse, scan.limit, see_record, context, self.error.as_mut_ptr())
        };
        u64::try_from(seen).map_err(|_| words(&self.error))
    }
}

impl Drop for ShimSession<'_> {
    fn drop(&mut self) {
        // SAFETY: (2).
        unsafe { (self.engine.api.close_session)(self.session) };
    }
}

/// # Safety
/// `sink` is a `Sink` that nobody else uses, `key` and `value` are bytes that may be read.
unsafe extern "C" fn see_record(sink: *mut c_void, key: RawBytes, value: RawBytes) {
    // SAFETY: (4), (5).
    unsafe { (*sink.cast::<Sink>()).record(bytes(key), bytes(value)) }
}

/// # Safety
/// As for `see_record`.
unsafe extern "C" fn see_value(sink: *mut c_void, _: RawBytes, value: RawBytes) {
    // SAFETY: (4), (5).
    unsafe { (*sink.cast::<Sink>()).value(bytes(value)) }
}

/// # Safety
/// The bytes may be read while the result is used.
unsafe fn bytes<'a>(raw: RawBytes) -> &'a [u8] {
    if raw.size == 0 {
        return &[];
    }
    // SAFETY: (4).
    unsafe { std::slice::from_raw_parts(raw.data.cast(), raw.size) }
}

fn raw(bytes: &[u8]) -> RawBytes {
    RawBytes { data: bytes.as_ptr().cast(), size: bytes.len() }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(super::words)
}

fn no_error() -> Error {
    [0; ERROR_BYTES]
}

fn check(code: c_int, error: &Error) -> Result<()> {
    if code == DONE { Ok(()) } else { Err(words(error)) }
}

/// The words up to the first zero.
fn words(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
