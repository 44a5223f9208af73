//! `--report_interval_seconds`: a thread that writes how many operations each interval saw.

use ironstone::Result;
use ironstone_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use ironstone_base::sync::thread::{JoinHandle, spawn_named};
use ironstone_base::sync::{Arc, Condvar, Mutex};
use ironstone_vfs::{Clock, FileSystem, SystemClock, WritableFile, WriteOptions};
use std::path::Path;
use std::time::Duration;

const HEADER: &str = "secs_elapsed,interval_qps\n";

/// Counts the operations of all threads.
#[derive(Default)]
pub struct Reporter {
    /// Relaxed: only the number itself is read.
    done: AtomicU64,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// Stops the thread when dropped.
pub struct Reporting {
    reporter: Arc<Reporter>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts the thread. It writes a line to `path` every so many seconds.
    pub fn start(
        fs: &dyn FileSystem,
        path: &Path,
        seconds: u64,
        clock: &Arc<SystemClock>,
    ) -> Result<Reporting> {
        let mut file = fs.create(path, WriteOptions::default())?;
        file.append(HEADER.as_bytes())?;
        file.flush()?;
        let reporter = Arc::new(Self::default());
        let (counter, clock) = (Arc::clone(&reporter), Arc::clone(clock));
        let thread = spawn_named("reporter", move || {
            if let Err(error) = counter.write_lines(&mut *file, seconds, &clock) {
                eprintln!("Can't write to report file ({error}), stopping the reporting");
            }
        });
        Ok(Reporting { reporter, thread: Some(thread) })
    }

    /// `count` more operations are done.
    #[inline]
    pub fn add(&self, count: u64) {
        self.done.fetch_add(count, Relaxed);
    }

    fn write_lines(&self, file: &mut dyn WritableFile, seconds: u64, clock: &SystemClock) -> Result<()> {
        let started = clock.monotonic_nanos();
        let (mut due, mut last) = (started, 0);
        let mut stopped = self.stopped.lock();
        loop {
            due += seconds * 1_000_000_000;
            while !*stopped && clock.monotonic_nanos() < due {
                let wait = Duration::from_nanos(due.saturating_sub(clock.monotonic_nanos()));
                self.stop.wait_for(&mut stopped, wait);
            }
            if *stopped {
                return file.close();
            }
            let done = self.done.load(Relaxed);
            let elapsed = (clock.monotonic_nanos() - started + 500_000_000) / 1_000_000_000;
            file.append(format!("{elapsed},{}\n", done - last).as_bytes())?;
            file.flush()?;
            last = done;
        }
    }
}

impl Reporting {
    /// What threads count with.
    pub fn reporter(&self) -> Arc<Reporter> {
        Arc::clone(&self.reporter)
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        *self.reporter.stopped.lock() = true;
        self.reporter.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // It has said why it ended, if it ended badly.
        }
    }
}
