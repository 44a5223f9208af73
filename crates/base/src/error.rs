//! The one error type, with the codes that RocksDB's C and Java interfaces report.

use std::fmt;
use std::path::Path;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it is. Numbers and texts are RocksDB's (`Status::Code`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Code {
    NotFound = 1,
    Corruption = 2,
    NotSupported = 3,
    InvalidArgument = 4,
    IoError = 5,
    MergeInProgress = 6,
    Incomplete = 7,
    ShutdownInProgress = 8,
    TimedOut = 9,
    Aborted = 10,
    Busy = 11,
    Expired = 12,
    TryAgain = 13,
    CompactionTooLarge = 14,
    ColumnFamilyDropped = 15,
}

impl Code {
    /// The text that starts a message of this code, as applications match it.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound: ",
            Self::Corruption => "Corruption: ",
            Self::NotSupported => "Not implemented: ",
            Self::InvalidArgument => "Invalid argument: ",
            Self::IoError => "IO error: ",
            Self::MergeInProgress => "Merge in progress: ",
            Self::Incomplete => "Result incomplete: ",
            Self::ShutdownInProgress => "Shutdown in progress: ",
            Self::TimedOut => "Operation timed out: ",
            Self::Aborted => "Operation aborted: ",
            Self::Busy => "Resource busy: ",
            Self::Expired => "Operation expired: ",
            Self::TryAgain => "Operation failed. Try again.: ",
            Self::CompactionTooLarge => "Compaction too large: ",
            Self::ColumnFamilyDropped => "Column family dropped: ",
        }
    }
}

/// Refines a [`Code`]. Numbers are RocksDB's (`Status::SubCode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum SubCode {
    #[default]
    None = 0,
    MutexTimeout = 1,
    LockTimeout = 2,
    LockLimit = 3,
    NoSpace = 4,
    Deadlock = 5,
    StaleFile = 6,
    MemoryLimit = 7,
    SpaceLimit = 8,
    PathNotFound = 9,
    MergeOperandsInsufficientCapacity = 10,
    ManualCompactionPaused = 11,
    Overwritten = 12,
    TxnNotPrepared = 13,
    IoFenced = 14,
    MergeOperatorFailed = 15,
    MergeOperandThresholdExceeded = 16,
    CompactionAborted = 19,
}

/// How far a background failure stops the database. Numbers are RocksDB's (`Status::Severity`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
#[repr(u8)]
pub enum Severity {
    /// Not a background failure.
    #[default]
    None = 0,
    /// Writes go on; background work is retried.
    Soft = 1,
    /// Writes stop until `resume`.
    Hard = 2,
    /// Writes stop; `resume` may succeed after the cause is gone.
    Fatal = 3,
    /// Only reopening helps.
    Unrecoverable = 4,
}

/// What a leaf decoder says: bytes that cannot be right, and why. The first caller that knows the
/// file and the offset turns it into an [`Error`] with [`Corrupt::at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt(pub &'static str);

impl Corrupt {
    /// Names the file and the byte offset where the bad bytes begin.
    #[cold]
    pub fn at(self, file: &Path, offset: u64) -> Error {
        Error::corruption_at(file, offset, self.0)
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    sub_code: SubCode,
    severity: Severity,
    retryable: bool,
    message: String,
}

/// A failure: its code, subcode, severity, and a message that names file, place and act.
/// One pointer wide, so that `Result<()>` stays in a register.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

impl Error {
    /// An error of `code` with a message that does not repeat the code's prefix.
    #[cold]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (sub_code, severity) = (SubCode::None, Severity::None);
        Self(Box::new(Inner { code, sub_code, severity, retryable: false, message: message.into() }))
    }
    /// See [`Code::NotFound`]. A missing key is `None`, not this; this is for missing things asked for by name.
    #[cold]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }
    /// See [`Code::Corruption`]. Prefer [`Error::corruption_at`].
    #[cold]
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(Code::Corruption, message)
    }
    /// Damage in `file`, at byte `offset`.
    #[cold]
    pub fn corruption_at(file: &Path, offset: u64, what: impl fmt::Display) -> Self {
        Self::new(Code::Corruption, format!("{} at {offset}: {what}", file.display()))
    }
    /// A feature that is not built, named.
    #[cold]
    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::new(Code::NotSupported, message)
    }
    /// The caller's mistake.
    #[cold]
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }
    /// A failed call to the operating system: `act` on `file`. `ENOSPC` and `ENOENT` set the subcode; what may go away by
    /// itself is retryable.
    #[cold]
    pub fn io(file: &Path, act: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let new = Self::new(Code::IoError, format!("{act} {}: {error}", file.display()));
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => new.with_sub_code(SubCode::NoSpace),
            ErrorKind::NotFound => new.with_sub_code(SubCode::PathNotFound),
            kind => new.with_retryable(passes(kind)),
        }
    }
    /// An I/O error that no system call reported.
    #[cold]
    pub fn io_message(message: impl Into<String>) -> Self {
        Self::new(Code::IoError, message)
    }
    /// See [`Code::Incomplete`]: answering would have blocked.
    #[cold]
    pub fn incomplete(message: impl Into<String>) -> Self {
        Self::new(Code::Incomplete, message)
    }
    /// See [`Code::TimedOut`].
    #[cold]
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::new(Code::TimedOut, message)
    }
    /// See [`Code::Aborted`].
    #[cold]
    pub fn aborted(message: impl Into<String>) -> Self {
        Self::new(Code::Aborted, message)
    }
    /// See [`Code::ShutdownInProgress`].
    #[cold]
    pub fn shutdown() -> Self {
        Self::new(Code::ShutdownInProgress, "the database is closing")
    }

    /// The same error with another subcode.
    #[must_use]
    pub fn with_sub_code(mut self, sub_code: SubCode) -> Self {
        self.0.sub_code = sub_code;
        self
    }
    /// The same error with another severity.
    #[must_use]
    pub fn with_severity(mut self, severity: Severity) -> Self {
        self.0.severity = severity;
        self
    }
    /// The same error, which may go away by itself, or not.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }
    /// The same error with `context` in front of its message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// The kind of failure.
    pub fn code(&self) -> Code {
        self.0.code
    }
    /// The refinement of the kind.
    pub fn sub_code(&self) -> SubCode {
        self.0.sub_code
    }
    /// How far it stops the database, for background failures.
    pub fn severity(&self) -> Severity {
        self.0.severity
    }
    /// The message without the code's prefix.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Whether bytes on disk were found damaged.
    pub fn is_corruption(&self) -> bool {
        self.0.code == Code::Corruption
    }
    /// Whether a file that was asked for by path does not exist.
    pub fn is_path_not_found(&self) -> bool {
        self.0.sub_code == SubCode::PathNotFound
    }
    /// Whether the device or quota is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self.0.sub_code, SubCode::NoSpace | SubCode::SpaceLimit)
    }
    /// Whether the cause may go away by itself, so that the same thing may succeed later: a full device, a time limit, a remote
    /// that does not answer. It says nothing of what the failed call has left behind.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable || self.is_no_space()
    }
    /// Whether answering would have blocked.
    pub fn is_incomplete(&self) -> bool {
        self.0.code == Code::Incomplete
    }
}

/// Whether a system call that failed so may succeed later, though nobody does anything about it. `EIO` is not among them: the
/// device says that it has lost something.
fn passes(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::*;
    matches!(
        kind,
        WouldBlock
            | TimedOut
            | Interrupted
            | OutOfMemory
            | ResourceBusy
            | NetworkDown
            | NetworkUnreachable
            | HostUnreachable
            | ConnectionRefused
            | ConnectionReset
            | ConnectionAborted
            | NotConnected
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0.code.prefix(), self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?}, {:?}, {:?})", self.0.code, self.0.sub_code, self.0.severity)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_names_file_and_offset() {
        let error = Corrupt("data block checksum mismatch").at(Path::new("/d/000012.sst"), 4096);
        assert_eq!(error.to_string(), "Corruption: /d/000012.sst at 4096: data block checksum mismatch");
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn what_may_pass_is_retryable_and_a_device_that_lost_something_is_not() {
        use std::io::ErrorKind::*;
        let error = |kind| Error::io(Path::new("/d/000012.log"), "sync", &std::io::Error::from(kind));
        for kind in [WouldBlock, TimedOut, Interrupted, StorageFull, QuotaExceeded, NetworkUnreachable] {
            assert!(error(kind).is_retryable(), "{kind}");
            assert!(error(kind).context("flush").with_severity(Severity::Hard).is_retryable(), "{kind}");
        }
        let device = Error::io(Path::new("/d/000012.log"), "sync", &std::io::Error::from_raw_os_error(5));
        for error in [device, error(PermissionDenied), error(NotFound), Error::io_message("torn")] {
            assert!(!error.is_retryable(), "{error}");
        }
    }

    #[test]
    fn full_disk_is_no_space() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert!(Error::io(Path::new("/d/000012.log"), "append to", &full).is_no_space());
    }
}
