//! Failures of the remote as the engine's errors.

use ironstone_base::{Code, Error, SubCode};
use opendal::ErrorKind;
use std::error::Error as _;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// What the remote said about `act` on `path`, which is the object `uri`.
#[cold]
pub(crate) fn failed(act: &str, path: &Path, uri: &str, error: &opendal::Error) -> Error {
    let mut message = format!("{act} {} ({uri}): {}", path.display(), error.kind());
    if !error.message().is_empty() {
        write!(message, ": {}", error.message()).expect("text grows");
    }
    let mut source = error.source();
    while let Some(cause) = source {
        write!(message, ": {cause}").expect("text grows");
        source = cause.source();
    }
    // A remote that does not answer, breaks off, takes too long or has too much to do. (Whether a single try was worth another one
    // is not known here: the layer that tries again makes every failure one that has stayed.)
    let passes = matches!(error.kind(), ErrorKind::Unexpected | ErrorKind::RateLimited);
    let failure = Error::new(Code::IoError, message).with_retryable(passes);
    match error.kind() {
        ErrorKind::NotFound => failure.with_sub_code(SubCode::PathNotFound),
        _ => failure,
    }
}

/// The local file system would have said `kind`.
#[cold]
pub(crate) fn refused(act: &str, path: &Path, kind: io::ErrorKind) -> Error {
    Error::io(path, act, &io::Error::from(kind))
}

#[cold]
pub(crate) fn missing(act: &str, path: &Path) -> Error {
    refused(act, path, io::ErrorKind::NotFound)
}
