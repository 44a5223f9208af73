//! Closing reads the MANIFEST back (`verify_manifest_content_on_close`).

use crate::engine::Engine;
use crate::info_log::warning;
use ironstone_base::statistics::Ticker;
use ironstone_base::{Error, Result};

/// Compares the MANIFEST with what was written, if that is wished. A bad one is replaced by a new one, which is compared, too. No
/// background work may run.
pub(super) fn verify_on_close(engine: &Engine) -> Result<()> {
    if engine.read_only || !engine.options().verify_manifest_content_on_close {
        return Ok(());
    }
    let Err(damage) = content(engine) else { return Ok(()) };
    if !damage.is_corruption() {
        return Err(damage);
    }
    warning!(engine.log, "the MANIFEST is not what was written, a new one takes its place: {damage}");
    engine.manifest.lock().roll();
    engine.commit_edits_of(None, |_| Vec::new(), |_, _| ())?;
    content(engine)
}

fn content(engine: &Engine) -> Result<()> {
    let count = |error: &Error| {
        engine.count(Ticker::ManifestValidationFailureCount, u64::from(error.is_corruption()));
    };
    engine.manifest.lock().verify_content().inspect_err(count)
}
