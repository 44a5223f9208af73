//! Of writers that wait for a sync, one does it for all that came before it began.

use ironstone_base::Result;
use ironstone_base::perf::PerfMetric;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::{Condvar, Mutex};
use ironstone_vfs::PerfTimer;

/// Who syncs the log now, and how far it was synced. Those who wait here hold no lock that the next sync needs, so whoever
/// it covered goes on while the next one runs.
#[derive(Default)]
pub(crate) struct SyncGroup {
    /// Somebody syncs.
    leading: Mutex<bool>,
    ended: Condvar,
    /// Offsets of the log up to here are durable. Raised before the turn ends, so Relaxed under the lock would do.
    synced: AtomicU64,
}

impl SyncGroup {
    /// Returns once the log is durable up to `end`: by somebody else's sync, or by `lead`, which syncs it and answers how
    /// far; 0 if nobody but itself may take that for granted.
    pub(crate) fn wait_or_lead(&self, end: u64, lead: impl FnOnce() -> Result<u64>) -> Result<()> {
        let mut leading = self.leading.lock();
        loop {
            if self.synced.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            if !*leading {
                break;
            }
            let _timer = PerfTimer::wait(PerfMetric::WriteThreadWaitNanos);
            self.ended.wait(&mut leading);
        }
        *leading = true;
        drop(leading);
        let _turn = Turn(self);
        let synced = lead()?;
        self.synced.fetch_max(synced, Ordering::Release);
        Ok(())
    }
}

/// Ends however the sync ends: the next one takes its own turn.
struct Turn<'a>(&'a SyncGroup);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.leading.lock() = false;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::Error;
    use ironstone_base::sync::{Arc, thread};

    #[test]
    fn one_syncs_for_those_who_came_before_it_began() {
        let group = Arc::new(SyncGroup::default());
        let syncs = Arc::new(AtomicU64::new(0));
        group.wait_or_lead(10, || Ok(25)).unwrap();
        group.wait_or_lead(25, || unreachable!("it is durable")).unwrap();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let (group, syncs) = (Arc::clone(&group), Arc::clone(&syncs));
                thread::spawn_named("writer", move || {
                    group.wait_or_lead(30, || {
                        syncs.fetch_add(1, Ordering::Relaxed);
                        Ok(30)
                    })
                })
            })
            .collect();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().unwrap());
        assert_eq!(syncs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_failure_is_of_who_led_and_the_next_takes_its_turn() {
        let group = SyncGroup::default();
        group.wait_or_lead(10, || Err(Error::io_message("full"))).unwrap_err();
        group.wait_or_lead(10, || Ok(0)).unwrap();
        let mut led = false;
        group
            .wait_or_lead(10, || {
                led = true;
                Ok(10)
            })
            .unwrap();
        assert!(led, "0 is for nobody else");
    }
}
