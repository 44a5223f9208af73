//! A table file whose reads must be done in time, or at a rate.

use crate::options::ReadLimits;
use ironstone_base::{Error, Result, Statistics};
use ironstone_vfs::{Clock, IoKind, IoPriority, RandomAccessFile, RateLimiter};
use std::path::Path;

/// Begins no read before the rate limiter lets it, nor once the deadline has passed, and tells the file how long each may take.
pub(crate) struct LimitedFile<'a> {
    pub file: &'a dyn RandomAccessFile,
    pub limits: ReadLimits,
    pub clock: &'a dyn Clock,
    pub rate: Option<(&'a dyn RateLimiter, IoPriority)>,
    /// Where the rate limiter counts.
    pub statistics: Option<&'a Statistics>,
}

impl RandomAccessFile for LimitedFile<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some((limiter, priority)) = self.rate {
            limiter.pace(buf.len() as u64, priority, self.statistics, IoKind::Read);
        }
        if !self.limits.any() {
            return self.file.read_at(offset, buf);
        }
        match self.limits.timeout(self.clock) {
            Some(timeout) => self.file.read_within(offset, buf, timeout),
            None => Err(Error::timed_out(format!(
                "{} at {offset}: the deadline passed before this was read",
                self.path().display()
            ))),
        }
    }
    fn prefetch(&self, offset: u64, len: u64) -> bool {
        self.file.prefetch(offset, len)
    }
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::Code;
    use ironstone_base::sync::Mutex;
    use ironstone_vfs::ManualClock;
    use std::time::Duration;

    /// Notes how long its reads were given; `None`: as long as they take.
    struct Asked(Mutex<Vec<Option<u64>>>);

    impl RandomAccessFile for Asked {
        fn read_at(&self, _offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.0.lock().push(None);
            Ok(buf.len())
        }
        fn read_within(&self, _offset: u64, buf: &mut [u8], timeout: Duration) -> Result<usize> {
            self.0.lock().push(Some(timeout.as_micros() as u64));
            Ok(buf.len())
        }
        fn size(&self) -> u64 {
            100
        }
        fn path(&self) -> &Path {
            Path::new("/000009.sst")
        }
    }

    #[test]
    fn a_read_is_given_the_time_that_is_left() {
        let (file, clock) = (Asked(Mutex::default()), ManualClock::new(1_000));
        let read = |deadline_micros, io_timeout_micros| {
            let limits = ReadLimits { deadline_micros, io_timeout_micros };
            assert!(limits.any());
            let limited = LimitedFile { file: &file, limits, clock: &clock, rate: None, statistics: None };
            limited.read_at(7, &mut [0; 10])
        };
        assert_eq!(read(0, 30), Ok(10));
        assert_eq!(read(1_050, 0), Ok(10));
        assert_eq!(read(1_050, 30), Ok(10));
        clock.set_micros(1_030);
        assert_eq!(read(1_050, 30), Ok(10));
        assert_eq!(*file.0.lock(), [Some(30), Some(50), Some(30), Some(20)]);
        clock.set_micros(1_050);
        let error = read(1_050, 30).unwrap_err();
        assert_eq!(error.code(), Code::TimedOut);
        assert_eq!(error.message(), "/000009.sst at 7: the deadline passed before this was read");
        assert_eq!(file.0.lock().len(), 4, "no read is begun");
        assert!(!ReadLimits::default().any());
    }
}
