//! `block-cache-trace`.

use super::access::written;
use ironstone::{BlockCacheHumanReadableTrace, BlockCacheTraceReader, FileTraceReader, Result};
use ironstone_vfs::Env;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints a trace of the block cache, a record a line.
pub fn block_cache(file: &Path) -> Result<ExitCode> {
    let reader = FileTraceReader::open(&*Env::os().fs, file)?;
    let mut readable = BlockCacheHumanReadableTrace::default();
    let mut out = BufWriter::new(io::stdout().lock());
    for record in BlockCacheTraceReader::new(Box::new(reader))? {
        match record {
            Ok(record) => {
                let line = writeln!(out, "{}", readable.line(&record));
                if line.is_err() {
                    return written(line);
                }
            }
            Err(error) => {
                let _ = out.flush(); // What there was is worth having; the error says more than a failure of this.
                return Err(error);
            }
        }
    }
    written(out.flush())
}
