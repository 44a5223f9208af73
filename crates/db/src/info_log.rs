//! The LOG file: what the database did and why, for whoever runs it.
//!
//! Lines look as RocksDB's: `2026/01/31-12:00:00.123456 7 [place] text`, and events are JSON behind
//! `EVENT_LOG_v1`. A LOG that cannot be written never fails the database.

use crate::open::listings::Listed;
use ironstone_base::perf::{IoMetric, PerfMetric};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{Result, file_name};
use ironstone_vfs::{Env, PerfTimer, WritableFile, WriteOptions};
use std::fmt;
use std::path::{Path, PathBuf};

/// How much is logged. Numbers are RocksDB's (`InfoLogLevel`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum InfoLogLevel {
    Debug = 0,
    #[default]
    Info = 1,
    Warn = 2,
    Error = 3,
    Fatal = 4,
    Header = 5,
}

/// When a LOG is set aside, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolling {
    /// A LOG of so many bytes is set aside; 0: only at the next opening.
    pub(crate) max_bytes: u64,
    /// A LOG of so many seconds is set aside; 0: never.
    pub(crate) max_seconds: u64,
    /// How many are kept, the current one included.
    pub(crate) keep: usize,
}

/// Writes the LOG of one database.
pub(crate) struct InfoLog {
    env: Env,
    dir: PathBuf,
    level: InfoLogLevel,
    rolling: Rolling,
    current: Mutex<Option<Current>>,
}

struct Current {
    file: Box<dyn WritableFile>,
    since_seconds: u64,
}

impl InfoLog {
    /// Sets an existing LOG aside and starts a new one. [`InfoLog::remove_old`] is for later.
    pub(crate) fn open(env: &Env, dir: &Path, level: InfoLogLevel, rolling: Rolling) -> Arc<Self> {
        let log = Self { env: env.clone(), dir: dir.to_owned(), level, rolling, current: Mutex::new(None) };
        log.start().ok(); // See the module's promise.
        Arc::new(log)
    }

    /// A log that keeps nothing: for databases that may not write.
    pub(crate) fn none(env: &Env) -> Arc<Self> {
        let rolling = Rolling { max_bytes: 0, max_seconds: 0, keep: 1 };
        let (dir, current) = (PathBuf::new(), Mutex::new(None));
        Arc::new(Self { env: env.clone(), dir, level: InfoLogLevel::Header, rolling, current })
    }

    fn start(&self) -> Result<()> {
        let _timer = PerfTimer::start(PerfMetric::EnvNewLoggerNanos);
        let path = file_name::info_log(&self.dir);
        if self.env.fs.exists(&path)? {
            let aside = file_name::old_info_log(&self.dir, self.env.clock.now_micros());
            self.env.fs.rename(&path, &aside)?;
        }
        let options = WriteOptions { buffer_bytes: 4 << 10, ..WriteOptions::default() };
        let file = self.env.fs.create(&path, options)?;
        *self.current.lock() = Some(Current { file, since_seconds: self.env.clock.now_seconds() });
        Ok(())
    }

    fn old_logs<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
        names.filter(|name| name.starts_with("LOG.old.")).map(|name| self.dir.join(name)).collect()
    }

    /// Removes old LOGs that are not kept. `listing`: what is in the directory, if that is known.
    pub(crate) fn remove_old(&self, listing: Option<&[Listed]>) -> Result<()> {
        if self.dir.as_os_str().is_empty() {
            return Ok(()); // It keeps nothing.
        }
        let mut old: Vec<PathBuf> = match listing {
            Some(listing) => self.old_logs(listing.iter().map(|listed| &*listed.name)),
            None => self.old_logs(self.env.fs.list(&self.dir)?.iter().map(|name| &**name)),
        };
        old.sort_unstable_by(|a, b| a.as_os_str().cmp(b.as_os_str())); // All of one directory.
        let excess = (old.len() + 1).saturating_sub(self.rolling.keep.max(1));
        old.iter().take(excess).try_for_each(|path| self.env.fs.remove(path))
    }

    fn is_due(&self, current: &Current) -> bool {
        let Rolling { max_bytes, max_seconds, .. } = self.rolling;
        let age = self.env.clock.now_seconds().saturating_sub(current.since_seconds);
        (max_bytes > 0 && current.file.size() >= max_bytes) || (max_seconds > 0 && age >= max_seconds)
    }

    /// Whether lines of `level` are kept.
    pub(crate) fn wants(&self, level: InfoLogLevel) -> bool {
        level >= self.level
    }

    /// Adds a line.
    pub(crate) fn line(&self, level: InfoLogLevel, text: fmt::Arguments<'_>) {
        if !self.wants(level) {
            return;
        }
        let _timer = PerfTimer::io(IoMetric::LoggerNanos);
        let mut guard = self.current.lock();
        let Some(current) = guard.as_mut() else { return };
        let mark = match level {
            InfoLogLevel::Debug => "[DEBUG] ",
            InfoLogLevel::Warn => "[WARN] ",
            InfoLogLevel::Error => "[ERROR] ",
            InfoLogLevel::Fatal => "[FATAL] ",
            InfoLogLevel::Info | InfoLogLevel::Header => "",
        };
        let stamp = Stamp(self.env.clock.now_micros());
        let line = format!("{stamp} {} {mark}{text}\n", thread_number());
        // See the module's promise: what cannot be logged is not logged.
        let written = current.file.append(line.as_bytes()).and_then(|()| current.file.flush());
        let due = self.is_due(current);
        if written.is_err() {
            *guard = None;
        } else if due {
            *guard = None;
            drop(guard);
            self.start().and_then(|()| self.remove_old(None)).ok();
        }
    }

    /// Adds an event: a JSON object with the time and the event's name put in front.
    pub(crate) fn event(&self, event: &str, fields: serde_json::Value) {
        if !self.wants(InfoLogLevel::Info) {
            return;
        }
        let mut object = serde_json::Map::new();
        object.insert("time_micros".into(), self.env.clock.now_micros().into());
        object.insert("event".into(), event.into());
        if let serde_json::Value::Object(fields) = fields {
            object.extend(fields);
        }
        self.line(InfoLogLevel::Info, format_args!("EVENT_LOG_v1 {}", serde_json::Value::Object(object)));
    }
}

/// A small number for the current thread.
fn thread_number() -> u64 {
    use ironstone_base::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

struct Stamp(u64);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0 / 1_000_000).unwrap_or(0);
        let at =
            time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        let (hour, minute, second) = at.to_hms();
        write!(f, "{year:04}/{month:02}/{day:02}-{hour:02}:{minute:02}:{second:02}.{:06}", self.0 % 1_000_000)
    }
}

/// `info!(log, "text {}", value)` and its siblings.
macro_rules! info {
    ($log:expr, $($text:tt)*) => { $log.line($crate::info_log::InfoLogLevel::Info, format_args!($($text)*)) };
}
macro_rules! warning {
    ($log:expr, $($text:tt)*) => { $log.line($crate::info_log::InfoLogLevel::Warn, format_args!($($text)*)) };
}
pub(crate) use {info, warning};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_a_date() {
        assert_eq!(Stamp(1_000_000_000_000_123).to_string(), "2001/09/09-01:46:40.000123");
        assert_eq!(Stamp(u64::MAX).to_string().len(), 26);
    }
}
