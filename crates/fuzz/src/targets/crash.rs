//! Writes, a fault and a power loss.
//!
//! ```text
//! options  u8   bit 0 recycled WALs; 1 manual flushing of the WAL; 2 one column family, or two
//! fault    u8 kind (0: none) | operation u16 that fails
//! crash    operation u16 at which the power fails, counted from the end of the opening | policy u8 | seed u8
//! steps    (what u8 | content) ...
//! ```
//! Each batch writes its number to every column family. What the database has after the loss is what some prefix of
//! the batches makes, the same in every column family, and every batch that was acknowledged as synced is in it.

use super::{Seed, Target};
use crate::directory::{DIR, FAMILIES, env, make_small, scan};
use crate::input::{Input, MAX_INPUT};
use ironstone::options::DbOptions;
use ironstone::{
    ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, Db, FlushOptions, WriteBatch,
    WriteOptions,
};
use ironstone_base::sync::Arc;
use ironstone_testkit::model::{Change, Model};
use ironstone_vfs::fault::{Fault, FaultError, FaultFileSystem, FaultRule};
use ironstone_vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone_vfs::{Env, SystemClock};

pub(super) const TARGET: Target =
    Target { name: "crash", what: "writes, a fault and a power loss", run, seeds, mutations: 1_000 };

const MARK: &[u8] = b"mark";
const MAX_STEPS: usize = 60;

struct Run {
    options: DbOptions,
    families: Vec<ColumnFamilyDescriptor>,
    /// `states[m]`: after the first `m` batches that were tried.
    states: Vec<Model>,
    /// All up to this one were acknowledged as synced.
    durable: usize,
    /// All up to this one were handed to the system: a killed process leaves them there.
    written: usize,
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let bits = input.byte();
    let fault = fault(&mut input);
    let (point, policy, seed) = (input.u16(), input.pick(&CrashPolicy::ALL), input.byte());
    let memory = MemFileSystem::new();
    let faulty = Arc::new(FaultFileSystem::new(Arc::new(memory.clone())));
    let faulty_env = Env { fs: faulty.clone(), clock: Arc::new(SystemClock::new()) };
    let mut run = Run::new(bits, faulty_env);
    let db = run.open(&run.options).expect("memory does not fail yet");
    if let Some(rule) = fault {
        faulty.add(rule);
    }
    memory.set_crash_point(memory.op_count() + u64::from(point));
    for _ in 0..MAX_STEPS {
        // Behind a failure nobody knows what a further one adds.
        if input.is_empty() || run.step(&db, &mut input).is_err() {
            break;
        }
    }
    let image = memory.crash(policy, u64::from(seed));
    drop(db);
    run.verify(image, policy == CrashPolicy::KeepAll);
}

fn fault(input: &mut Input<'_>) -> Option<FaultRule> {
    let (kind, after) = (input.byte(), u64::from(input.u16() % 512));
    let error = if kind & 0x80 == 0 { FaultError::Io } else { FaultError::NoSpace };
    let rule = match kind % 4 {
        0 => return None,
        1 => FaultRule::error(error).on_changes(),
        2 => FaultRule::new(Fault::ShortWrite(usize::from(kind), error)),
        _ => FaultRule::error(error).on_changes().forever(),
    };
    Some(rule.after(after))
}

impl Run {
    fn new(bits: u8, env: Env) -> Self {
        let mut options = DbOptions {
            env,
            create_if_missing: true,
            create_missing_column_families: true,
            recycle_log_file_num: usize::from(bits & 1) * 2,
            manual_wal_flush: bits & 2 != 0,
            ..DbOptions::default()
        };
        let mut cf =
            ColumnFamilyOptions { level0_file_num_compaction_trigger: 2, ..ColumnFamilyOptions::default() };
        make_small(&mut options, &mut cf);
        cf.write_buffer_size = 8 << 10;
        let names = if bits & 4 == 0 { &FAMILIES[..] } else { &FAMILIES[..1] };
        let families = names.iter().map(|name| ColumnFamilyDescriptor::new(*name, cf.clone())).collect();
        let mut model = Model::new();
        names.iter().skip(1).for_each(|name| model.create(name));
        Self { options, families, states: vec![model], durable: 0, written: 0 }
    }

    fn open(&self, options: &DbOptions) -> ironstone::Result<Db> {
        Db::open_column_families(options, DIR, self.families.clone())
    }

    fn step(&mut self, db: &Db, input: &mut Input<'_>) -> ironstone::Result<()> {
        let what = input.byte();
        let all = self.states.len() - 1;
        match what % 8 {
            0..=4 => return self.write(db, input, what),
            5 => {
                db.flush_wal(what & 8 != 0)?;
                self.written = all;
                if what & 8 != 0 {
                    self.durable = all;
                }
            }
            6 => {
                let cfs: Vec<_> =
                    self.families.iter().filter_map(|family| db.column_family(&family.name)).collect();
                db.flush_cfs(&FlushOptions::default(), &cfs.iter().collect::<Vec<_>>())?;
                (self.durable, self.written) = (all, all);
            }
            _ => {
                let cf = db.default_column_family();
                db.compact_range(&CompactRangeOptions::default(), cf, None, None)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, db: &Db, input: &mut Input<'_>, what: u8) -> ironstone::Result<()> {
        let number = self.states.len();
        let mut model = self.states[number - 1].clone();
        let mut batch = WriteBatch::new();
        for family in &self.families {
            let cf = db.column_family(&family.name).expect("it was opened");
            let mark = number.to_string().into_bytes();
            batch.put_cf(&cf, MARK, &mark);
            model.apply(&Change::Put(family.name.clone(), MARK.to_vec(), mark));
            let shape = input.byte();
            let key = vec![b'k', shape & 15];
            if shape & 0x30 == 0x30 {
                batch.delete_cf(&cf, &key);
                model.apply(&Change::Delete(family.name.clone(), key));
            } else {
                let value = vec![shape; usize::from(shape) * 4];
                batch.put_cf(&cf, &key, &value);
                model.apply(&Change::Put(family.name.clone(), key, value));
            }
        }
        self.states.push(model);
        let sync = what & 0x10 != 0;
        db.write(&batch, &WriteOptions { sync, ..WriteOptions::default() })?;
        if sync {
            self.durable = number;
        }
        if sync || !self.options.manual_wal_flush {
            self.written = number;
        }
        Ok(())
    }

    fn verify(&self, image: MemFileSystem, killed: bool) {
        let options = DbOptions { env: env(image), ..self.options.clone() };
        let db = self.open(&options).unwrap_or_else(|error| panic!("after the power loss: {error}"));
        let promised = if killed { self.written.max(self.durable) } else { self.durable };
        let found: Vec<_> = self
            .families
            .iter()
            .map(|family| {
                let cf = db.column_family(&family.name).expect("it was opened");
                scan(&db, &cf).expect("memory does not fail any more")
            })
            .collect();
        let is_of = |state: &Model| {
            self.families.iter().zip(&found).all(|(family, found)| state.family(&family.name) == found)
        };
        assert!(
            self.states[promised..].iter().any(is_of),
            "of {} batches the first {promised} were promised; found the marks {:?}",
            self.states.len() - 1,
            found.iter().map(|entries| entries.get(MARK)).collect::<Vec<_>>()
        );
        db.put(b"after", b"1").expect("it goes on working");
        db.close().expect("memory does not fail any more");
    }
}

fn seeds() -> Vec<Seed> {
    let steps: &[u8] = b"\x00\x05\x06\x10\x81\x82\x05\x0d\x00\x33\x11\x06\x11\x09\x22\x00\xff\xfe\x00\xfd\xfc\x0d\x07\x10\x41\x42\x06\x00\x01\x02";
    let mut seeds = Vec::new();
    for (number, policy) in (0..8u8).zip([5u8, 12, 20, 33, 47, 60, 80, 200]) {
        let head = [number, 0, 0, 0, policy, 0, number, 3];
        seeds.push(Seed::new(format!("crash_{number}"), [&head[..], steps].concat()));
        let fault = [number, number % 3 + 1, policy / 2, 0, 200, 0, number, 1];
        seeds.push(Seed::new(format!("fault_{number}"), [&fault[..], steps].concat()));
    }
    seeds
}
