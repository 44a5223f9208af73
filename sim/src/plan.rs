//! What one simulation does: all of it follows from a seed, and from what it is cut down to.

use ironstone::{ColumnFamilyOptions, CompactionStyle, CompressionKind, DbOptions, DbPath, merge_operators};
use ironstone_testkit::random_options::{let_oldest_go, random_db_options, random_family_options};
use ironstone_vfs::Env;
use ironstone_vfs::OpKind;
use ironstone_vfs::fault::{Fault, FaultError, FaultRule};
use ironstone_vfs::mem::{CrashPolicy, SyncFailure, SyncFault};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::time::Duration;

/// The most of everything that a plan may have; for making a failing one smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Threads that write.
    pub writers: usize,
    /// Batches of each.
    pub batches: usize,
    /// Threads that read.
    pub readers: usize,
    /// Flushes, compactions and the like.
    pub chores: usize,
    /// Column families.
    pub families: usize,
    /// Another schedule of the same plan.
    pub schedule: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self { writers: 9, batches: 99, readers: 9, chores: 99, families: 9, schedule: 0 }
    }
}

impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Self::default();
        let mut say = |name: &str, value: usize, most: usize| {
            if value < most { write!(f, " --{name} {value}") } else { Ok(()) }
        };
        say("writers", self.writers, all.writers)?;
        say("batches", self.batches, all.batches)?;
        say("readers", self.readers, all.readers)?;
        say("chores", self.chores, all.chores)?;
        say("families", self.families, all.families)?;
        if self.schedule > 0 { write!(f, " --schedule {}", self.schedule) } else { Ok(()) }
    }
}

/// Something done beside the writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chore {
    /// Flushes all column families.
    FlushAll,
    /// Flushes one.
    Flush(usize),
    /// Switches the memtable of one and does not wait.
    StartFlush(usize),
    /// Switches the memtables of all and does not wait.
    StartFlushAll,
    /// Rewrites all tables of one.
    Compact(usize),
    /// Wants the tables of one compacted, and does not wait.
    Suggest(usize),
    /// Moves level 0 of one deeper, if nothing is in the way.
    Promote(usize, usize),
    /// Hands the WAL's buffer over, and syncs it or not.
    FlushWal(bool),
    /// Syncs the WAL.
    SyncWal,
    /// Keeps background work from starting for a while.
    Pause,
    /// Aborts the compactions of one, or all, and resumes them after a while.
    Abort(Option<usize>),
    /// Creates a column family that nobody writes to, and drops it again.
    CreateAndDrop,
    /// Sets the wall clock, in microseconds since 1970.
    JumpTo(u64),
    /// Changes options of one, or of the database.
    SetOptions(usize),
    /// Ingests a file behind one: it brings one key, and another that was deleted before and stays so.
    IngestBehind(usize),
    /// Writes keys of its own to one, and removes their tables again: by range (`true`) or by name.
    RemoveTables(usize, bool),
    /// Prepares a file for each, and ingests all of them at once after a while, beside those before or in their place, or gives them up.
    IngestInPhases,
    /// Makes a checkpoint, with a flush (`true`) or with WALs, and looks at it.
    Copy(bool),
    /// Makes a backup, restores it elsewhere, and looks at that.
    BackUp(bool),
    /// Reads the log while others write: no batch is missing between those that come.
    ReadLog,
    /// Opens a secondary, looks at it, and again once it has caught up.
    Second,
    /// Opens a follower, looks at it, and again once it has caught up.
    Follow,
    /// Locks the WAL for a while, and looks whether anything goes past it.
    LockWal,
}

/// What goes wrong while the database works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Nothing.
    None,
    /// The power fails at this operation after the creation.
    PowerLoss(u64),
    /// Calls fail.
    Fault(FaultRule),
    /// A sync fails.
    Sync(SyncFault),
    /// The disk has room for so many bytes more than there are.
    FullDisk(u64),
}

/// How often a fault comes that seems not to go away. Compactions are tried again until it has, and writers wait for them.
const STUBBORN: u64 = 1000;

/// How threads are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// At random, each time.
    Random,
    /// By priorities that change so many times (probabilistic concurrency testing).
    Priorities(usize),
}

/// One simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What all of it follows from.
    pub seed: u64,
    /// For the choices of the threads.
    pub schedule: Schedule,
    /// The seed of these choices.
    pub schedule_seed: u64,
    /// At one in so many atomic operations another thread may go on.
    pub one_in: u64,
    /// How many column families there are.
    pub families: usize,
    /// How many batches each writer writes.
    pub writers: Vec<usize>,
    /// How many times each reader reads.
    pub readers: Vec<usize>,
    /// What is done beside, in order.
    pub chores: Vec<Chore>,
    /// What goes wrong.
    pub trouble: Trouble,
    /// So many operations after the first write that failed, the power fails: while somebody resumes.
    pub power_too: Option<u64>,
    /// Whether the database is closed before the end, or ends with whatever it was doing.
    pub closes: bool,
    /// What a crash at the end leaves.
    pub policy: CrashPolicy,
    /// Chooses what that is.
    pub policy_seed: u64,
    /// The recovery loses its power at this operation, too.
    pub nested: Option<u64>,
    /// How large values are at most.
    pub value_size: usize,
    /// One in so many writes is synced; 0 for none.
    pub sync_one_in: u32,
    /// Whether flushes take all column families at once.
    pub atomic_flush: bool,
    /// Whether writes go around the WAL, which only makes sense with that.
    pub unlogged: bool,
    /// The column family that drops its oldest tables, if one does; never the first.
    pub drops: Option<usize>,
}

impl Plan {
    /// The plan of `seed`, cut down to `caps`.
    pub fn new(seed: u64, caps: &Caps) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let families = rng.random_range(1..=3usize);
        let batches = *[4, 12, 30].choose(&mut rng).expect("not empty");
        let writers = rng.random_range(1..=4usize);
        let readers = rng.random_range(0..=2usize);
        let chores = rng.random_range(0..=8usize);
        let mut plan = Self {
            seed,
            schedule: if rng.random_bool(0.6) {
                Schedule::Random
            } else {
                Schedule::Priorities(rng.random_range(2..=12))
            },
            schedule_seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ caps.schedule,
            one_in: *[8, 32, 128, 1024].choose(&mut rng).expect("not empty"),
            families,
            writers: (0..writers).map(|_| rng.random_range(1..=batches)).collect(),
            readers: (0..readers).map(|_| rng.random_range(1..=6)).collect(),
            chores: (0..chores).map(|_| chore(&mut rng, families)).collect(),
            trouble: trouble(&mut rng),
            power_too: rng.random_bool(0.3).then(|| rng.random_range(0..16)),
            closes: rng.random_bool(0.4),
            policy: *CrashPolicy::ALL.choose(&mut rng).expect("not empty"),
            policy_seed: rng.random(),
            nested: rng.random_bool(0.25).then(|| rng.random_range(0..60)),
            value_size: *[8, 200, 1500].choose(&mut rng).expect("not empty"),
            sync_one_in: *[0, 1, 3, 3, 10].choose(&mut rng).expect("not empty"),
            atomic_flush: false,
            unlogged: false,
            drops: None,
        };
        plan.atomic_flush = rng.random_bool(0.35);
        plan.unlogged = plan.atomic_flush && rng.random_bool(0.6);
        if plan.unlogged {
            plan.sync_one_in = 0;
            // A flush of one column family alone takes that one ahead of the others.
            plan.chores.iter_mut().for_each(|chore| match chore {
                Chore::Flush(_) | Chore::RemoveTables(..) => *chore = Chore::FlushAll,
                Chore::StartFlush(_) => *chore = Chore::StartFlushAll,
                _ => {}
            });
        }
        let drops = rng.random_bool(0.4).then(|| families - 1).filter(|&family| family > 0);
        if let Some(family) = drops {
            // What these bring might go.
            plan.chores.iter_mut().for_each(|chore| match chore {
                Chore::IngestInPhases => *chore = Chore::FlushAll,
                Chore::IngestBehind(of) | Chore::RemoveTables(of, _) if *of == family => {
                    *chore = Chore::Compact(family);
                }
                _ => {}
            });
        }
        plan.families = families.min(caps.families);
        plan.drops = drops.filter(|&family| family < plan.families);
        plan.writers.truncate(caps.writers);
        plan.writers.iter_mut().for_each(|batches| *batches = (*batches).min(caps.batches));
        plan.readers.truncate(caps.readers);
        plan.chores.truncate(caps.chores);
        plan
    }

    /// The options of the database.
    pub fn db_options(&self, env: &Env) -> DbOptions {
        let mut options = random_db_options(&mut self.generator(1), env);
        options.atomic_flush = self.atomic_flush;
        if self.unlogged {
            options.recycle_log_file_num = 0; // The two exclude each other.
        }
        options
    }
    /// How many threads there are for the last level.
    pub fn bottom_threads(&self) -> usize {
        self.generator(70).random_range(0..3)
    }
    /// The options of column family `number`.
    pub fn family_options(&self, number: usize) -> ColumnFamilyOptions {
        let mut options = random_family_options(&mut self.generator(2 + number as u64));
        options.inplace_update_support = false; // Readers have snapshots.
        options.merge_operator = Some(merge_operators::put());
        if self.drops == Some(number) {
            let rng = &mut self.generator(60 + number as u64);
            let_oldest_go(rng, &mut options);
            // Tables hold ids that are drawn from addresses; their sizes, on which drops depend, may not depend on these.
            (options.compression, options.bottommost_compression) = (CompressionKind::None, None);
            if options.ttl == 0 {
                options.compaction_options_fifo.max_table_files_size = rng.random_range(3_000..20_000);
            }
        }
        if options.compaction_style != CompactionStyle::Fifo
            && self.generator(50 + number as u64).random_bool(0.2)
        {
            options.cf_paths = vec![DbPath::new("/upper", 20_000), DbPath::new(format!("/lower{number}"), 0)];
        }
        options
    }
    /// A generator for the choices of thing number `thing`.
    pub fn generator(&self, thing: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.rotate_left(17) ^ thing.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
    /// Whether a call may fail although the engine makes no mistake.
    pub fn may_fail(&self) -> bool {
        self.trouble != Trouble::None
    }
}

fn chore(rng: &mut StdRng, families: usize) -> Chore {
    let family = rng.random_range(0..families);
    match rng.random_range(0..28) {
        0..3 => Chore::FlushAll,
        3 => Chore::Flush(family),
        4..6 => Chore::StartFlush(family),
        6 => Chore::Compact(family),
        7 => Chore::FlushWal(true),
        8 => Chore::FlushWal(false),
        9 => Chore::SyncWal,
        10 => Chore::Pause,
        11 => Chore::CreateAndDrop,
        12 => Chore::Suggest(family),
        13 => Chore::Promote(family, rng.random_range(1..4)),
        14 => Chore::JumpTo(*[0, 1, 1 << 40, 1 << 50, u64::MAX >> 12].choose(rng).expect("not empty")),
        15 => Chore::IngestBehind(family),
        16 => Chore::RemoveTables(family, rng.random()),
        17 => Chore::Abort(rng.random_bool(0.5).then_some(family)),
        18..20 => Chore::IngestInPhases,
        20 => Chore::Copy(rng.random()),
        21 => Chore::Follow,
        22 => Chore::LockWal,
        23 => Chore::BackUp(rng.random()),
        24 => Chore::ReadLog,
        25 => Chore::Second,
        _ => Chore::SetOptions(family),
    }
}

fn trouble(rng: &mut StdRng) -> Trouble {
    let early = |rng: &mut StdRng| match rng.random_range(0..3) {
        0 => rng.random_range(0..12),
        1 => rng.random_range(0..80),
        _ => rng.random_range(0..400),
    };
    let suffixes = ["", "", ".log", ".sst", "MANIFEST"];
    match rng.random_range(0..20) {
        0..5 => Trouble::None,
        5..12 => Trouble::PowerLoss(early(rng)),
        12..15 => {
            let errors =
                [FaultError::Io, FaultError::NoSpace, FaultError::TooManyOpenFiles, FaultError::Interrupted];
            let error = *errors.choose(rng).expect("not empty");
            let rule = match rng.random_range(0..4) {
                0 => FaultRule::error(error).on(&[OpKind::Read]),
                1 => FaultRule::new(Fault::ShortWrite(rng.random_range(0..40), FaultError::NoSpace)),
                2 => FaultRule::new(Fault::Delay(Duration::from_millis(rng.random_range(1..2000)))).times(5),
                _ => FaultRule::error(error).on_changes(),
            };
            let rule = if rng.random_bool(0.3) { rule.times(STUBBORN) } else { rule };
            let suffix = *suffixes.choose(rng).expect("not empty");
            Trouble::Fault(rule.path(suffix).after(early(rng)))
        }
        15..18 => {
            let failures = [SyncFailure::StaysDirty, SyncFailure::MarkedClean, SyncFailure::Reverted];
            Trouble::Sync(SyncFault {
                path_contains: (*suffixes.choose(rng).expect("not empty")).to_owned(),
                after: early(rng) / 8,
                failure: *failures.choose(rng).expect("not empty"),
            })
        }
        _ => Trouble::FullDisk(rng.random_range(0..60_000)),
    }
}
