//! How busy the background is, for listeners.

use super::flush::is_due;
use crate::engine::{Engine, State, stall_runs};
use crate::listener::BackgroundJobPressure;

impl Engine {
    /// Tells listeners how busy the background is, after a job has ended. No lock may be held.
    pub(crate) fn tell_pressure(&self) {
        if self.listeners.is_empty() {
            return;
        }
        let pressure = pressure(&self.state.lock());
        self.listeners.tell(|listener| listener.on_background_job_pressure_changed(&pressure));
    }
}

fn pressure(state: &State) -> BackgroundJobPressure {
    let families = || state.families.values();
    let low_running = state.running_compactions - state.running_bottom;
    let low_scheduled = low_running + state.unscheduled_compactions();
    let bottom_scheduled = state.running_bottom + state.waiting_for_bottom();
    BackgroundJobPressure {
        compaction_scheduled: low_scheduled + bottom_scheduled,
        compaction_running: state.running_compactions,
        compaction_low_scheduled: low_scheduled,
        compaction_low_running: low_running,
        compaction_bottom_scheduled: bottom_scheduled,
        compaction_bottom_running: state.running_bottom,
        flush_scheduled: state.running_flushes + families().filter(|family| is_due(family)).count(),
        flush_running: state.running_flushes,
        write_stall_proximity_pct: proximity(state),
        compaction_speedup_active: state.compaction_is_pressing,
    }
}

/// How near the column family that is nearest to it is to being slowed down, in per cent.
fn proximity(state: &State) -> u64 {
    let share = |value: u64, of: u64| (100.0 * value as f64 / of as f64) as u64;
    let either = |first: u64, second: u64| if first > 0 { first } else { second };
    let families = state.families.values();
    let of_family = families.filter_map(|family| {
        let settings = family.data.settings();
        let version = &state.versions.column_family(family.data.id)?.current;
        let limits = settings.options.stall_limits();
        let files = either(limits.level0_slowdown as u64, limits.level0_stop as u64);
        let bytes = either(limits.soft_pending_bytes, limits.hard_pending_bytes);
        let by_files =
            (files > 0).then(|| share(stall_runs(version, settings.compaction.style) as u64, files));
        let by_bytes = (bytes > 0).then(|| share(family.pending_bytes, bytes));
        by_files.max(by_bytes)
    });
    of_family.max().unwrap_or(0)
}
