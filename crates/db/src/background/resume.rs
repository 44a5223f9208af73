//! Going on after a failure that stopped writes: when told to, and by itself where the cause may pass.

use super::flush::flush_all_at_once;
use crate::engine::Engine;
use crate::info_log::{info, warning};
use crate::listener::{BackgroundErrorRecoveryInfo, Event};
use crate::write::switch::Which;
use ironstone_base::statistics::{Histogram, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result, Severity};

/// Gives up the WAL, whose end nobody can be sure of, and writes everything that memtables hold to tables. If that
/// works, every write that was acknowledged is there, and writes are taken again.
pub(crate) fn resume(engine: &Engine) -> Result<()> {
    let _one_at_a_time = engine.resuming.lock();
    let error = {
        let state = engine.state.lock();
        if engine.read_only {
            return state.background_error.clone().map_or(Ok(()), Err);
        }
        let Some(error) = state.background_error.clone() else { return Ok(()) };
        if error.severity() >= Severity::Unrecoverable {
            return Err(error);
        }
        error
    };
    if let Some(manager) = &engine.options().sst_file_manager {
        manager.check_space()?;
    }
    // The failure stays until the end: no flush starts, and no write is taken. Those under way end
    // with an error or in a memtable.
    engine.switch_memtables(&Which::All)?;
    flush_all_at_once(engine)?;
    let mut state = engine.state.lock();
    if state.closing {
        return Err(Error::shutdown());
    }
    if let Some(worse) = state.background_error.clone().filter(|now| *now != error) {
        return Err(worse);
    }
    info!(engine.log, "resumed after: {error}");
    engine.tell_later(Event::Recovered(error));
    state.background_error = None;
    engine.stalls.resumed(engine.env.clock.monotonic_nanos());
    engine.writes_stopped.store(false, std::sync::atomic::Ordering::Release);
    engine.pipeline.take_writes();
    engine.update_stall(&mut state);
    engine.wake_workers();
    Ok(())
}

/// One try after a failure that may pass. Answers whether there is to be another one.
pub(crate) fn try_again(engine: &Arc<Engine>, tries: u32) -> bool {
    engine.count(Ticker::ErrorHandlerAutoresumeRetryTotalCount, 1);
    let Err(error) = resume(engine) else {
        engine.count(Ticker::ErrorHandlerAutoresumeSuccessCount, 1);
        count_tries(engine, tries);
        return false;
    };
    let state = engine.state.lock();
    let (closing, still) = (state.closing, state.background_error.clone());
    drop(state);
    // What stopped writes may pass, but not what this try met: then it is of no use to go on.
    let wait = !closing && still.as_ref().is_some_and(may_pass) && may_pass(&error);
    let limit = u32::try_from(engine.options().max_bgerror_resume_count).unwrap_or(0);
    if wait && tries >= limit {
        warning!(engine.log, "still not after {tries} tries, waiting for resume: {error}");
        count_tries(engine, tries);
        let gave_up = Error::aborted(format!("Exceeded resume retry count: {tries} tries"));
        still.into_iter().for_each(|old| engine.tell_not_recovered(old, gave_up.clone()));
        return false;
    }
    if !wait {
        count_tries(engine, tries);
        still.into_iter().for_each(|old| engine.tell_not_recovered(old, error.clone()));
        return false;
    }
    if tries == 1 {
        info!(engine.log, "cannot go on yet, will try again: {error}");
    }
    true
}

impl Engine {
    /// Lets listeners know that trying to go on after `old` is over, because of `new`.
    pub(crate) fn tell_not_recovered(&self, old: Error, new: Error) {
        self.tell_later(Event::NotRecovered(BackgroundErrorRecoveryInfo {
            old_bg_error: old,
            new_bg_error: Err(new),
        }));
    }
}

/// Trying is over.
fn count_tries(engine: &Engine, tries: u32) {
    if let Some(statistics) = &engine.statistics {
        statistics.measure(Histogram::ErrorHandlerAutoresumeRetryCount, tries.into());
    }
}

/// Whether the failure may go away by itself.
pub(crate) fn may_pass(error: &Error) -> bool {
    error.is_retryable() && error.severity() < Severity::Unrecoverable
}
