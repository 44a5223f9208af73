//! `get`, `put`, `delete`, `scan` and `stats`.

use super::opening;
use super::text::{parse, print};
use super::{Place, ScanRange};
use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use ironstone::{ColumnFamily, Db, Error, ReadOptions, Result, WriteOptions};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

fn column_family(db: &Db, place: &Place) -> Result<ColumnFamily> {
    db.column_family(&place.column_family).ok_or_else(|| {
        let what = format!("{}: no column family {}", place.dir.display(), place.column_family);
        Error::invalid_argument(what)
    })
}

/// What came of writing to the standard output. Nobody reading on is no failure.
pub(super) fn written(result: io::Result<()>) -> Result<ExitCode> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io_message(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints the value of a key as it is, or in hexadecimal.
pub fn get(place: &Place, key: &str) -> Result<ExitCode> {
    let key = parse(key, place.hex)?;
    let db = opening::read_only(&place.dir)?;
    let family = column_family(&db, place)?;
    let Some(value) = db.get_cf(&ReadOptions::default(), &family, &key)? else {
        return Err(Error::not_found(format!("key {}", print(&key, place.hex))));
    };
    let mut out = io::stdout().lock();
    written(if place.hex {
        writeln!(out, "{}", print(&value, true))
    } else {
        out.write_all(&value).and_then(|()| out.write_all(b"\n"))
    })
}

/// Sets a key, durably.
pub fn put(place: &Place, key: &str, value: &str) -> Result<ExitCode> {
    let (key, value) = (parse(key, place.hex)?, parse(value, place.hex)?);
    let db = opening::read_write(&place.dir)?;
    db.put_cf(&WriteOptions::synced(), &column_family(&db, place)?, key, value)?;
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes a key, durably.
pub fn delete(place: &Place, key: &str) -> Result<ExitCode> {
    let key = parse(key, place.hex)?;
    let db = opening::read_write(&place.dir)?;
    db.delete_cf(&WriteOptions::synced(), &column_family(&db, place)?, key)?;
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints keys and values in order.
pub fn scan(place: &Place, range: &ScanRange) -> Result<ExitCode> {
    let bound = |key: &Option<String>| key.as_deref().map(|key| parse(key, place.hex)).transpose();
    let options = ReadOptions {
        iterate_lower_bound: bound(&range.from)?,
        iterate_upper_bound: bound(&range.to)?,
        total_order_seek: true,
        fill_cache: false,
        ..ReadOptions::default()
    };
    let db = opening::read_only(&place.dir)?;
    let mut iter = db.iter_cf(&options, &column_family(&db, place)?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = range.limit.unwrap_or(u64::MAX);
    let mut more = if range.reverse { iter.seek_to_last()? } else { iter.seek_to_first()? };
    while more && left > 0 {
        let (key, value) = (iter.key().unwrap_or_default(), iter.value().unwrap_or_default());
        let line = match range.keys_only {
            true => writeln!(out, "{}", print(key, place.hex)),
            false => writeln!(out, "{} : {}", print(key, place.hex), print(value, place.hex)),
        };
        if line.is_err() {
            return written(line);
        }
        left -= 1;
        more = if range.reverse { iter.prev()? } else { iter.next()? };
    }
    written(out.flush())
}

/// Prints the shape of a database.
pub fn stats(place: &Place) -> Result<ExitCode> {
    let db = opening::read_only(&place.dir)?;
    let family = column_family(&db, place)?;
    let mut text = format!("database       {}\n", place.dir.display());
    text += &format!("identity       {}\n", db.identity());
    text += &format!("last sequence  {}\n", db.latest_sequence());
    let names = Db::list_column_families(&db.options(), &place.dir)?;
    text += &format!("families       {}\n", names.join(", "));
    text += &format!("\ncolumn family {}\n", family.name());
    text += &format!("{}\n", levels(&db, &family));
    for (name, property) in [
        ("estimated keys", "rocksdb.estimate-num-keys"),
        ("entries in memory", "rocksdb.num-entries-active-mem-table"),
        ("table bytes", "rocksdb.total-sst-files-size"),
        ("base level", "rocksdb.base-level"),
        ("pending compaction bytes", "rocksdb.estimate-pending-compaction-bytes"),
    ] {
        if let Some(value) = db.int_property_cf(&family, property) {
            text += &format!("{name:<26} {value:>15}\n");
        }
    }
    if let Some(properties) = db.property_cf(&family, "rocksdb.aggregated-table-properties") {
        text += &format!("tables: {properties}\n");
    }
    written(io::stdout().lock().write_all(text.as_bytes()))
}

fn levels(db: &Db, family: &ColumnFamily) -> Table {
    let mut table = Table::new();
    table
        .load_preset(ASCII_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["level", "files", "bytes"]);
    for (level, (files, bytes)) in db.level_shape(family).into_iter().enumerate() {
        if files > 0 {
            table.add_row([level.to_string(), files.to_string(), bytes.to_string()]);
        }
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
