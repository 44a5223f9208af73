//! What every decoder is held to.

use ironstone::{Code, Error};

/// Counts down: whoever loops over an input takes a step each time.
pub(crate) struct Steps {
    left: usize,
    what: &'static str,
}

impl Steps {
    /// At most `limit` steps.
    pub fn new(what: &'static str, limit: usize) -> Self {
        Self { left: limit, what }
    }
    /// One more.
    #[track_caller]
    pub fn take(&mut self) {
        assert!(self.left > 0, "{} does not end", self.what);
        self.left -= 1;
    }
}

/// An error must be of a kind that bad bytes may cause, and damage of a file must name it.
#[track_caller]
pub(crate) fn check_error(error: &Error, file: Option<&str>) {
    let known = [Code::Corruption, Code::NotSupported, Code::InvalidArgument, Code::IoError];
    assert!(known.contains(&error.code()), "an error of another kind: {error:?}");
    if let Some(file) = file
        && error.is_corruption()
    {
        assert!(error.message().contains(file), "{error} does not name {file}");
    }
}
