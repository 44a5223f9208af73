//! What a database holds, read in different ways.

use crate::history::{BatchId, Found};
use ironstone::{ColumnFamily, Db, DbIterator, KeyRange, ReadOptions, Snapshot};
use std::collections::BTreeSet;

/// The key of a writer's number.
pub fn number_key(writer: usize) -> Vec<u8> {
    format!("w{writer}").into_bytes()
}
/// A key that writers share.
pub fn shared_key(key: u8) -> Vec<u8> {
    format!("s{key:03}").into_bytes()
}
/// A key that one writer has for itself.
pub fn own_key(writer: usize, key: u8) -> Vec<u8> {
    format!("x{writer}.{key}").into_bytes()
}
/// A key that was deleted before a file was ingested behind that holds it.
pub fn hidden_key(number: u64) -> Vec<u8> {
    format!("b{number}").into_bytes()
}
/// A key that only a file ingested behind holds.
pub fn brought_key(number: u64) -> Vec<u8> {
    format!("c{number}").into_bytes()
}
/// A key that a file brings to each column family.
pub fn ingested_key(number: u64) -> Vec<u8> {
    format!("e{number}").into_bytes()
}
/// Its value.
pub fn ingested_value(number: u64) -> Vec<u8> {
    format!("ingestion {number}").into_bytes()
}
/// Where all of these keys are.
pub const INGESTED_KEYS: KeyRange<'static> = (Some(b"e"), Some(b"f"));
/// A key whose table is removed unread.
pub fn removed_key(number: u64, part: u8) -> Vec<u8> {
    format!("d{number}.{part}").into_bytes()
}
/// Its value.
pub fn removed_value() -> Vec<u8> {
    vec![b'd'; 1500]
}
/// The value that batch `id` puts, with so many bytes more.
pub fn value(id: BatchId, padding: usize) -> Vec<u8> {
    let mut value = format!("{}.{}.", id.0, id.1).into_bytes();
    let letter = b'a' + (id.1 % 26) as u8;
    value.resize(value.len() + padding, letter);
    value
}

fn writer_of(value: &[u8]) -> Result<BatchId, String> {
    let bad = || format!("a value that nobody wrote: {:?}", String::from_utf8_lossy(value));
    let mut parts = value.splitn(3, |byte| *byte == b'.');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let id = (number().ok_or_else(bad)?, number().ok_or_else(bad)?);
    let padding = parts.next().ok_or_else(bad)?;
    if value == self::value(id, padding.len()) { Ok(id) } else { Err(bad()) }
}

fn note(found: &mut Found, family: usize, key: &[u8], value: &[u8]) -> Result<(), String> {
    let bad = || format!("a key that nobody wrote: {:?}", String::from_utf8_lossy(key));
    let text = std::str::from_utf8(key).map_err(|_| bad())?;
    let (kind, number) = text.split_at_checked(1).ok_or_else(bad)?;
    match kind {
        "w" => {
            let number_of = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            let writer = number.parse().map_err(|_| bad())?;
            found.numbers[family].insert(writer, number_of.ok_or_else(bad)?);
        }
        "s" => {
            found.shared[family].insert(number.parse().map_err(|_| bad())?, writer_of(value)?);
        }
        "x" => {
            let (writer, key) = number.split_once('.').ok_or_else(bad)?;
            let place = (writer.parse().map_err(|_| bad())?, key.parse().map_err(|_| bad())?);
            found.own[family].insert(place, writer_of(value)?);
        }
        "d" if value == removed_value() => {}
        "e" if value == ingested_value(number.parse().map_err(|_| bad())?) => {}
        "b" | "c" => {} // A snapshot from before the tombstone shows what was ingested behind it.
        _ => return Err(bad()),
    }
    Ok(())
}

fn empty(families: usize) -> Found {
    Found {
        numbers: vec![Default::default(); families],
        shared: vec![Default::default(); families],
        own: vec![Default::default(); families],
    }
}

/// Whether all that tombstones should hide is hidden. The outer error is the database's.
pub fn nothing_shows_through(db: &Db, cfs: &[ColumnFamily]) -> ironstone::Result<Result<(), String>> {
    for cf in cfs {
        let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut iter = db.iter_cf(&options, cf)?;
        if iter.seek(b"b")?
            && let Some(key) = iter.key().filter(|key| key.starts_with(b"b"))
        {
            let key = key.escape_ascii();
            return Ok(Err(format!("{key} was ingested behind the tombstone that should hide it")));
        }
    }
    Ok(Ok(()))
}

/// Which ingestions each column family shows. The outer error is the database's.
pub fn ingestions(db: &Db, cfs: &[ColumnFamily]) -> ironstone::Result<Result<Vec<BTreeSet<u64>>, String>> {
    let mut all = Vec::new();
    for cf in cfs {
        let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut iter = db.iter_cf(&options, cf)?;
        let mut found = BTreeSet::new();
        let mut more = iter.seek(b"e")?;
        while more && let Some(key) = iter.key().filter(|key| key.starts_with(b"e")) {
            let number = std::str::from_utf8(&key[1..]).ok().and_then(|text| text.parse().ok());
            let Some(number) = number else {
                return Ok(Err(format!("a key that nobody ingested: {}", key.escape_ascii())));
            };
            found.insert(number);
            more = iter.next()?;
        }
        all.push(found);
    }
    Ok(Ok(all))
}

/// Everything, by an iterator forward and one backward, which must agree. The outer error is the database's.
pub fn by_iterators(
    db: &Db,
    cfs: &[ColumnFamily],
    options: &ReadOptions,
) -> ironstone::Result<Result<Found, String>> {
    let handles: Vec<&ColumnFamily> = cfs.iter().collect();
    by_walking(&mut db.iters_cf(options, &handles)?)
}

/// The same by iterators that there are, which are taken to `snapshot` first.
pub fn by_refreshed(
    iters: &mut [DbIterator],
    snapshot: &Snapshot,
) -> ironstone::Result<Result<Found, String>> {
    iters.iter_mut().try_for_each(|iter| iter.refresh_at(snapshot))?;
    by_walking(iters)
}

fn by_walking(iters: &mut [DbIterator]) -> ironstone::Result<Result<Found, String>> {
    let mut found = empty(iters.len());
    for (family, iter) in iters.iter_mut().enumerate() {
        let mut forward = Vec::new();
        let mut more = iter.seek_to_first()?;
        while more {
            forward.extend(iter.key().map(<[u8]>::to_vec).zip(iter.value().map(<[u8]>::to_vec)));
            more = iter.next()?;
        }
        let mut backward = Vec::new();
        let mut more = iter.seek_to_last()?;
        while more {
            backward.extend(iter.key().map(<[u8]>::to_vec).zip(iter.value().map(<[u8]>::to_vec)));
            more = iter.prev()?;
        }
        backward.reverse();
        if forward != backward {
            return Ok(Err(format!(
                "column family {family}: {} entries forward, other {} backward",
                forward.len(),
                backward.len()
            )));
        }
        if !forward.is_sorted_by(|one, other| one.0 < other.0) {
            return Ok(Err(format!("column family {family}: keys out of order")));
        }
        for (key, value) in &forward {
            if let Err(problem) = note(&mut found, family, key, value) {
                return Ok(Err(problem));
            }
        }
    }
    Ok(Ok(found))
}

/// How many keys a writer has for itself, one after the other.
pub const OWN_KEYS: u8 = 3;
/// How many writers a plan has at most.
pub const MOST_WRITERS: usize = 4;

/// The numbers of `writers`, their own keys and the shared keys below `keys`, by one `multi_get` for the numbers of all column
/// families and a `get` for each other key.
pub fn by_gets(
    db: &Db,
    cfs: &[ColumnFamily],
    options: &ReadOptions,
    writers: usize,
    keys: u8,
) -> ironstone::Result<Result<Found, String>> {
    let mut found = empty(cfs.len());
    let wanted: Vec<(usize, Vec<u8>)> = (0..cfs.len())
        .flat_map(|family| (0..writers).map(move |writer| (family, number_key(writer))))
        .collect();
    let pairs: Vec<(&ColumnFamily, &[u8])> =
        wanted.iter().map(|(family, key)| (&cfs[*family], &**key)).collect();
    for ((family, key), value) in wanted.iter().zip(db.multi_get_across(options, &pairs)) {
        if let Some(value) = value?
            && let Err(problem) = note(&mut found, *family, key, &value)
        {
            return Ok(Err(problem));
        }
    }
    for (family, cf) in cfs.iter().enumerate() {
        let own = (0..writers.min(MOST_WRITERS))
            .flat_map(|writer| (0..OWN_KEYS).map(move |key| own_key(writer, key)));
        for key in (0..keys).map(shared_key).chain(own) {
            if let Some(value) = db.get_cf(options, cf, &key)?
                && let Err(problem) = note(&mut found, family, &key, &value)
            {
                return Ok(Err(problem));
            }
        }
    }
    Ok(Ok(found))
}
