//! How often, and for how long, writers were held up, and by what.

use crate::Db;
use crate::engine::Engine;
use crate::listener::{WriteStallCause, WriteStallCondition};
use crate::totals::Totals;
use ironstone_base::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// What one cause did to writers since the database was opened, see [`Db::write_stalls`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WriteStall {
    /// Whose debt it is; writers of the others wait with it. `None` if it is nobody's in particular.
    pub column_family: Option<String>,
    /// By what.
    pub cause: WriteStallCause,
    /// How much it holds them up now.
    pub condition: WriteStallCondition,
    /// How often it began to slow writers down.
    pub delays: u64,
    /// How often it began to stop them.
    pub stops: u64,
    /// For how long it slowed down whoever wrote.
    pub delayed: Duration,
    /// For how long it stopped whoever wrote.
    pub stopped: Duration,
    /// How many writes waited because of it.
    pub waits: u64,
    /// How long they waited, all together.
    pub waited: Duration,
}

/// The state of one column family, and since when it is so.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct StallClock {
    pub(crate) condition: WriteStallCondition,
    cause: Option<WriteStallCause>,
    since_nanos: u64,
}

impl StallClock {
    /// From now on it is so. If that is new: answers the condition before, and adds the time of that to `totals`.
    pub(crate) fn turn(
        &mut self,
        condition: WriteStallCondition,
        cause: Option<WriteStallCause>,
        now_nanos: u64,
        totals: &Mutex<Totals>,
    ) -> Option<WriteStallCondition> {
        let before = self.condition;
        if (before, self.cause) == (condition, cause) {
            return None;
        }
        if self.cause.is_some() {
            self.add_to(&mut totals.lock(), now_nanos);
        }
        *self = Self { condition, cause, since_nanos: now_nanos };
        Some(before)
    }

    /// Adds the time up to now to what it is due to.
    fn add_to(&self, totals: &mut Totals, now_nanos: u64) {
        let Some(cause) = self.cause else { return };
        let spent = now_nanos.saturating_sub(self.since_nanos);
        let counts = totals.stalls_mut(cause);
        match self.condition {
            WriteStallCondition::Normal => {}
            WriteStallCondition::Delayed => counts.delayed_nanos += spent,
            WriteStallCondition::Stopped => counts.stopped_nanos += spent,
        }
    }

    /// Begins anew to count how long it has been so.
    pub(crate) fn restart(&mut self, now_nanos: u64) {
        self.since_nanos = now_nanos;
    }

    fn condition_by(&self, cause: WriteStallCause) -> WriteStallCondition {
        if self.cause == Some(cause) { self.condition } else { WriteStallCondition::Normal }
    }
}

/// Writes that waited.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Waits {
    pub(crate) count: u64,
    pub(crate) nanos: u64,
}

/// Something that holds all writers up while it lasts.
#[derive(Default)]
struct Spell {
    /// How many there are within.
    active: usize,
    since_nanos: u64,
    count: u64,
    nanos: u64,
}

impl Spell {
    fn begin(&mut self, now_nanos: u64) {
        if self.active == 0 {
            self.since_nanos = now_nanos;
            self.count += 1;
        }
        self.active += 1;
    }
    fn restart(&mut self, now_nanos: u64) {
        *self = Self { active: self.active, since_nanos: now_nanos, ..Self::default() };
    }
    fn end(&mut self, now_nanos: u64) {
        self.active = self.active.saturating_sub(1);
        if self.active == 0 {
            self.nanos += now_nanos.saturating_sub(self.since_nanos);
        }
    }
    fn report(&self, cause: WriteStallCause, waits: Waits, now_nanos: u64) -> WriteStall {
        let running = if self.active > 0 { now_nanos.saturating_sub(self.since_nanos) } else { 0 };
        WriteStall {
            column_family: None,
            cause,
            condition: match self.active {
                0 => WriteStallCondition::Normal,
                _ => WriteStallCondition::Stopped,
            },
            delays: 0,
            stops: self.count,
            delayed: Duration::ZERO,
            stopped: Duration::from_nanos(self.nanos + running),
            waits: waits.count,
            waited: Duration::from_nanos(waits.nanos),
        }
    }
}

/// What holds all writers of a database up, whatever they write to.
#[derive(Default)]
pub(crate) struct DatabaseStalls(Mutex<DatabaseSpells>);

#[derive(Default)]
struct DatabaseSpells {
    buffer: Spell,
    buffer_waits: Waits,
    space: Spell,
}

impl DatabaseStalls {
    /// A writer waits for the write buffer manager as long as the value lives.
    pub(crate) fn wait_for_buffer<'a>(&'a self, engine: &'a Engine) -> BufferWait<'a> {
        let since_nanos = engine.env.clock.monotonic_nanos();
        self.0.lock().buffer.begin(since_nanos);
        BufferWait { stalls: self, engine, since_nanos }
    }
    /// Tables have taken all the space that they may.
    pub(crate) fn space_ended(&self, now_nanos: u64) {
        let mut spells = self.0.lock();
        if spells.space.active == 0 {
            spells.space.begin(now_nanos);
        }
    }
    /// Writes go on after a failure.
    pub(crate) fn resumed(&self, now_nanos: u64) {
        let mut spells = self.0.lock();
        if spells.space.active > 0 {
            spells.space.end(now_nanos);
        }
    }
    /// Begins anew to count.
    pub(crate) fn restart(&self, now_nanos: u64) {
        let mut spells = self.0.lock();
        spells.buffer.restart(now_nanos);
        spells.space.restart(now_nanos);
        spells.buffer_waits = Waits::default();
    }
    fn lock(&self) -> MutexGuard<'_, DatabaseSpells> {
        self.0.lock()
    }
}

/// See [`DatabaseStalls::wait_for_buffer`].
pub(crate) struct BufferWait<'a> {
    stalls: &'a DatabaseStalls,
    engine: &'a Engine,
    since_nanos: u64,
}

impl Drop for BufferWait<'_> {
    fn drop(&mut self) {
        let now = self.engine.env.clock.monotonic_nanos();
        let mut spells = self.stalls.lock();
        spells.buffer.end(now);
        spells.buffer_waits.count += 1;
        spells.buffer_waits.nanos += now.saturating_sub(self.since_nanos);
    }
}

impl Db {
    /// What held writers up since the database was opened, and what does now: for each column family each cause that may
    /// be its own, then what concerns the whole database. Causes that never had an effect are in the answer as well, so
    /// that what is observed has a beginning.
    ///
    /// ```
    /// # fn main() -> ironstone::Result<()> {
    /// # let db = ironstone::Db::open(&ironstone::Options::in_memory(), "/db")?;
    /// for stall in db.write_stalls() {
    ///     println!("{:?} {}: stopped for {:?}", stall.column_family, stall.cause.name(), stall.stopped);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_stalls(&self) -> Vec<WriteStall> {
        let engine = self.engine();
        let now = engine.env.clock.monotonic_nanos();
        let mut stalls = Vec::new();
        let state = engine.state.lock();
        for family in state.families.values() {
            let mut totals = family.data.totals.lock().clone();
            family.stall.add_to(&mut totals, now);
            stalls.extend(WriteStallCause::OF_COLUMN_FAMILY.map(|cause| {
                let (counts, waits) = (totals.stalls(cause), engine.controller.waits(family.data.id, cause));
                WriteStall {
                    column_family: Some(family.data.name.clone()),
                    cause,
                    condition: family.stall.condition_by(cause),
                    delays: counts.delays,
                    stops: counts.stops,
                    delayed: Duration::from_nanos(counts.delayed_nanos),
                    stopped: Duration::from_nanos(counts.stopped_nanos),
                    waits: waits.count,
                    waited: Duration::from_nanos(waits.nanos),
                }
            }));
        }
        drop(state);
        let spells = engine.stalls.lock();
        let of_buffer = (WriteStallCause::WriteBufferManagerLimit, &spells.buffer, spells.buffer_waits);
        let of_space = (WriteStallCause::SpaceLimit, &spells.space, Waits::default());
        stalls.extend([of_buffer, of_space].map(|(cause, spell, waits)| spell.report(cause, waits, now)));
        stalls
    }
}
