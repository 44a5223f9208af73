//! Ironstone through its public interface. Arguments and output: `ironstone_compat::driver`.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, Db, DbOptions, DbPath,
    Error, FlushOptions, ReadOptions, Result, SizeApproximationOptions, WriteBatch, WriteOptions,
};
use ironstone_compat::workload::{Digest, Operation, Workload, cf_name};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let arguments = Arguments::parse()?;
    if arguments.command == "repair" {
        arguments.repair()?;
        println!("ok");
        return Ok(());
    }
    let db = arguments.open()?;
    match arguments.command.as_str() {
        "write" => arguments.write(&db)?,
        "dump" => arguments.dump(&db)?,
        "sizes" => arguments.sizes(&db)?,
        "hold" => hold()?,
        other => return Err(Error::invalid_argument(format!("unknown command {other}"))),
    }
    println!("ok");
    if arguments.text("exit") == "abrupt" {
        std::process::exit(0); // Runs no destructor, so the database stays unclean.
    }
    db.close()
}

struct Arguments {
    command: String,
    texts: HashMap<String, String>,
    workload: Workload,
    rounds: Range<u64>,
}

impl Arguments {
    fn parse() -> Result<Self> {
        let mut arguments = std::env::args().skip(1);
        let command = arguments.next().unwrap_or_default();
        let mut texts = HashMap::new();
        for argument in arguments {
            let (name, value) = argument
                .split_once('=')
                .ok_or_else(|| Error::invalid_argument(format!("{argument} has no value")))?;
            texts.insert(name.to_owned(), value.to_owned());
        }
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| Error::invalid_argument(format!("{text:?} is no number")))
        };
        let number_of = |name: &str, default: u64| texts.get(name).map_or(Ok(default), |text| number(text));
        let workload = Workload {
            seed: number_of("seed", 0)?,
            cfs: number_of("cfs", 1)?,
            keys: number_of("keys", 100)?,
        };
        let (first, end) = texts.get("rounds").and_then(|text| text.split_once("..")).unwrap_or(("0", "0"));
        let rounds = number(first)?..number(end)?;
        Ok(Self { command, texts, workload, rounds })
    }

    fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }

    fn paths(&self, name: &str) -> Result<Vec<DbPath>> {
        let parse = |text: &str| {
            let (path, size) = text.rsplit_once(':')?;
            Some(DbPath::new(path, size.parse().ok()?))
        };
        let texts = self.text(name).split(',').filter(|text| !text.is_empty());
        let wrong = |text: &str| Error::invalid_argument(format!("{name}: {text}"));
        texts.map(|text| parse(text).ok_or_else(|| wrong(text))).collect()
    }

    fn options(&self) -> Result<(DbOptions, ColumnFamilyOptions)> {
        let create = self.command == "write";
        // Our own option has no text form.
        let db_options = self.text("db_options").replace(";strict_wal_recovery=false", "");
        let mut options = DbOptions::from_string(&db_options)?;
        options.strict_wal_recovery = db_options == self.text("db_options");
        options.create_if_missing = create;
        options.create_missing_column_families = create;
        let mut cf_options = ColumnFamilyOptions::from_string(self.text("cf_options"))?;
        options.db_paths = self.paths("db_paths")?;
        cf_options.cf_paths = self.paths("cf_paths")?;
        Ok((options, cf_options))
    }

    fn repair(&self) -> Result<()> {
        let (options, cf_options) = self.options()?;
        Db::repair(&options, self.text("dir"), &[], Some(&cf_options)).map(drop)
    }

    fn open(&self) -> Result<Db> {
        let (mut options, cf_options) = self.options()?;
        let (path, create) = (PathBuf::from(self.text("dir")), self.command == "write");
        let mut names: BTreeSet<String> = match Db::list_column_families(&options, &path) {
            Ok(names) => names.into_iter().collect(),
            Err(_) if create => BTreeSet::new(), // There is no database yet.
            Err(error) => return Err(error),
        };
        if create {
            names.extend((0..self.workload.cfs).map(cf_name));
        }
        let descriptors =
            names.into_iter().map(|name| ColumnFamilyDescriptor::new(name, cf_options.clone())).collect();
        if !self.text("follower").is_empty() {
            options.create_if_missing = true;
            return Db::open_as_follower(&options, self.text("follower"), path, descriptors);
        }
        match self.text("read_only") {
            "1" => Db::open_read_only(&options, path, descriptors),
            _ => Db::open_column_families(&options, path, descriptors),
        }
    }

    fn write(&self, db: &Db) -> Result<()> {
        let families = (0..self.workload.cfs)
            .map(|cf| column_family(db, &cf_name(cf)))
            .collect::<Result<Vec<ColumnFamily>>>()?;
        let actions: Vec<&str> = self.text("after").split(',').collect();
        for (round, index) in self.rounds.clone().zip(0..) {
            self.write_round(db, &families, round)?;
            match self.text("extra") {
                "range_delete" => db.delete_range(b"key0000001", b"key0000003")?,
                "wide_range_delete" => db.delete_range(b"key0000010", b"key0000150")?,
                "merge" => db.merge(b"counter", 1u64.to_le_bytes())?,
                _ => {}
            }
            run_action(db, &families, actions[usize::min(index, actions.len() - 1)])?;
        }
        Ok(())
    }

    fn write_round(&self, db: &Db, families: &[ColumnFamily], round: u64) -> Result<()> {
        let mut batch = WriteBatch::new();
        for i in 0..self.workload.keys {
            for (family, cf) in families.iter().zip(0..) {
                for operation in self.workload.operations(round, cf, i) {
                    match operation {
                        Operation::Put(key, value) => batch.put_cf(family, key, value),
                        Operation::Delete(key) => batch.delete_cf(family, key),
                        Operation::SingleDelete(key) => batch.single_delete_cf(family, key),
                    }
                }
            }
            if i % 8 == 7 || i + 1 == self.workload.keys {
                db.write(&batch, &WriteOptions::default())?;
                batch.clear();
            }
        }
        Ok(())
    }

    fn dump(&self, db: &Db) -> Result<()> {
        let names: BTreeSet<String> =
            Db::list_column_families(&db.options(), self.text("dir"))?.into_iter().collect();
        for name in names {
            let digest = self.digest(db, &column_family(db, &name)?)?;
            println!("{}", digest.line(&name));
        }
        Ok(())
    }

    fn sizes(&self, db: &Db) -> Result<()> {
        let key = |part: u64| format!("key{:08x}", self.workload.keys * part / 10);
        let mut ranges: Vec<_> = (0..20).map(|part| key(part)..key(part + 1)).collect();
        ranges.push(String::new().."z".to_owned());
        for family in db.column_families() {
            let sizes = db.approximate_sizes(&SizeApproximationOptions::default(), &family, &ranges)?;
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            println!("cf {} {}", family.name(), sizes.join(" "));
        }
        Ok(())
    }

    fn digest(&self, db: &Db, family: &ColumnFamily) -> Result<Digest> {
        let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut digest = Digest::default();
        let mut iterator = db.iter_cf(&options, family)?;
        iterator.seek_to_first()?;
        while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
            digest.forward(key, value);
            iterator.next()?;
        }
        iterator.status()?;
        iterator.seek_to_last()?;
        while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
            digest.backward(key, value);
            iterator.prev()?;
        }
        iterator.status()?;
        for key in self.workload.lookup_keys() {
            digest.lookup(db.get_cf(&options, family, key)?.as_deref());
        }
        Ok(digest)
    }
}

fn column_family(db: &Db, name: &str) -> Result<ColumnFamily> {
    db.column_family(name).ok_or_else(|| Error::not_found(format!("column family {name}")))
}

fn run_action(db: &Db, families: &[ColumnFamily], action: &str) -> Result<()> {
    if action == "sync" {
        return db.sync_wal();
    }
    for family in families {
        if action != "none" {
            db.flush_cf(&FlushOptions::default(), family)?;
        }
        if action == "compact" {
            db.compact_range(&CompactRangeOptions::default(), family, None, None)?;
        }
    }
    Ok(())
}

fn hold() -> Result<()> {
    println!("held");
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .map_err(|error| Error::io_message(format!("read standard input: {error}")))?;
    Ok(())
}
