//! Writes `RELIABILITY.md` from what the campaigns recorded.

use crate::campaign::RECORDS;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

const FILE: &str = "RELIABILITY.md";

/// Writes the page.
pub fn write() -> Result<(), String> {
    let text = page(&records()?);
    std::fs::write(FILE, text).map_err(|error| format!("{FILE}: {error}"))
}

/// Whether the page says what the records say.
pub fn check() -> Result<(), String> {
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    if text == page(&records()?) {
        Ok(())
    } else {
        Err(format!("{FILE} is not up to date: cargo xtask reliability"))
    }
}

fn records() -> Result<BTreeMap<String, Value>, String> {
    let mut records = BTreeMap::new();
    let entries = std::fs::read_dir(RECORDS).map_err(|error| format!("{RECORDS}: {error}"))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        records.insert(path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), value);
    }
    Ok(records)
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), grouped)
}

fn of(record: &Value) -> String {
    format!("{} of {}", record["commit"].as_str().unwrap_or("-"), record["date"].as_str().unwrap_or("-"))
}

/// With no failure in so many independent trials: what the rate is below, with 95 % confidence.
fn bound(trials: &Value) -> String {
    trials
        .as_u64()
        .filter(|trials| *trials > 0)
        .map_or_else(String::new, |trials| format!("{:.1e}", 3.0 / trials as f64))
}

const INTRODUCTION: &str = "\
# What Ironstone is tested against, and what came of it

For whoever decides whether to trust it. This page is written by `cargo xtask reliability` from the records in
`docs/reliability`, which `cargo xtask campaign` makes; nothing on it is entered by hand but the list of what was found and fixed. Every
random test prints a line that replays a failure. What is promised is in [docs/invariants.md](docs/invariants.md) and in the documentation
of each option; how the harnesses work is in [docs/testing.md](docs/testing.md).

";

const LIMITS: &str = "\
## What is not covered

- A disk that lies about syncs: what it says is durable and is not, no engine can know.
- Damage of several bits at the end of a WAL, or a WAL cut at its end, after which nothing else was made durable: it
  looks like a power loss in the middle of a write, and the format that RocksDB 7 reads has no room for a mark that
  tells them apart. One flipped bit is found. Such ends are the rows *dropped* below.
- Bits that flip in memory: blocks are checked when they are read from the disk, not again in the cache; keys and values
  carry no checksum of their own between a write and its WAL record.
- Simulated threads see memory in one order. Weaker orders are looked at by loom, in small scenes over the memtables, the
  end of the commit pipeline and the block cache, and by Miri on memtable and cache; not in the engine as a whole.
- Machines other than x86-64 Linux.
";

fn page(records: &BTreeMap<String, Value>) -> String {
    let mut text = INTRODUCTION.to_owned();
    summary(&mut text, records);
    beside_rocksdb(&mut text, records);
    damage(&mut text, records);
    mistakes(&mut text, records);
    fuzz(&mut text, records);
    found(&mut text, records);
    text += LIMITS;
    text
}

/// What the harnesses found in the engine, which is fixed. The record is kept by hand, with each fix.
fn found(text: &mut String, records: &BTreeMap<String, Value>) {
    let found = records.get("found").and_then(|record| record["found"].as_array());
    let Some(found) = found else { return };
    let _ = write!(
        text,
        "## Found and fixed\n\nOpen: 0.\n\n| by | what | fix | test that shows it |\n|---|---|---|---|\n"
    );
    for one in found {
        let field = |name: &str| one[name].as_str().unwrap_or("-");
        let (by, what, fix, test) = (field("harness"), field("what"), field("commit"), field("test"));
        let _ = writeln!(text, "| {by} | {what} | {fix} | {test} |");
    }
    text.push('\n');
}

fn summary(text: &mut String, records: &BTreeMap<String, Value>) {
    text.push_str("## Faults\n\n| fault | how | trials | distinct | failures open | rate below (95 %) | version |\n|---|---|---|---|---|---|---|\n");
    let mut row = |fault: &str, how: &str, record: &Value, trials: &Value, distinct: &Value, random: bool| {
        let bound = if random { bound(trials) } else { "all tried".to_owned() };
        let _ = writeln!(
            text,
            "| {fault} | {how} | {} | {} | {} | {bound} | {} |",
            number(trials),
            number(distinct),
            number(&record["failures"]),
            of(record)
        );
    };
    if let Some(crash) = records.get("crash") {
        let how = "every operation of random workloads on a simulated disk, eight policies of what survives";
        row("power loss", how, crash, &crash["trials"], &crash["distinct_states"], true);
    }
    if let Some(sim) = records.get("sim") {
        let how = "threads under a seeded scheduler, with power losses, failing calls and syncs, full disks, clock \
                   jumps, interrupted recoveries";
        row("any of these with any schedule", how, sim, &sim["schedules"], &sim["distinct_images"], true);
    }
    if let Some(loom) = records.get("loom") {
        let scenes = number(&loom["scenes"]);
        let how = format!(
            "every schedule with up to 2 or 3 preemptions of {scenes} scenes over memtables, commit and cache (loom)"
        );
        row("orders of memory", &how, loom, &loom["executions"], &Value::Null, false);
    }
    for one in
        records.get("sanitize").and_then(|record| record["sanitizers"].as_array()).into_iter().flatten()
    {
        let sanitizer = one["sanitizer"].as_str().unwrap_or_default();
        let what = if sanitizer == "thread" { "data races" } else { "wild reads and writes" };
        let how = format!(
            "tests of what has `unsafe` or threads under the {sanitizer} sanitizer, standard library included"
        );
        let mut record = records["sanitize"].clone();
        record["failures"] =
            (one["reports"].as_u64().unwrap_or(1) + one["failed"].as_u64().unwrap_or(1)).into();
        row(what, &how, &record, &one["passed"], &Value::Null, false);
    }
    if let Some(kill) = records.get("kill") {
        row(
            "killed process",
            "SIGKILL at a random moment, real files",
            kill,
            &kill["kills"],
            &Value::Null,
            true,
        );
    }
    for (name, what, how, counted) in [
        ("power", "power loss, real file system", "shut down under a writing process, three ways", "losses"),
        ("full", "full disk, real file system", "filled by a writing process", "ends"),
    ] {
        let kinds = records.get(name).and_then(|record| record["kinds"].as_array());
        for kind in kinds.into_iter().flatten() {
            let file_system = kind["file_system"].as_str().unwrap_or_default();
            let mut record = records[name].clone();
            record["failures"] = kind["failures"].clone();
            row(what, &format!("{file_system} {how}"), &record, &kind[counted], &Value::Null, true);
        }
    }
    for (name, what) in [
        ("faults-io-error", "calls that fail with EIO"),
        ("faults-disk-full", "full disk, short writes"),
        ("faults-refused", "calls that fail with EMFILE or EINTR"),
        ("faults-failed-sync", "failed syncs, with three meanings of that"),
    ] {
        if let Some(faults) = records.get(name) {
            let scenarios = number(&faults["scenarios"]);
            let how = format!("the n-th call fails, for every n, in {scenarios} scenarios");
            row(what, &how, faults, &faults["places"], &Value::Null, false);
        }
    }
    if let Some(model) = records.get("model") {
        let how = "random operations under random options, against an ordered map";
        row("wrong answers", how, model, &model["operations"], &Value::Null, true);
    }
    text.push('\n');
}

fn damage(text: &mut String, records: &BTreeMap<String, Value>) {
    let all: Vec<&Value> =
        records.iter().filter(|(name, _)| name.starts_with("damage-")).map(|(_, one)| one).collect();
    if all.is_empty() {
        return;
    }
    text.push_str(
        "## Damaged files\n\nEach trial damages one file of a small database, opens it and reads everything. *Error*: \
         an error that names the file, and the place where there is one. *Correct*: every answer was right. *Dropped*: \
         writes at the end of a log were left out, as after a power loss. Nothing else happened in any trial.\n\n",
    );
    for record in all {
        let every = if record["every_bit"] == true { "every place" } else { "places in steps" };
        let _ = writeln!(
            text,
            "### {} ({every}; {})\n",
            record["title"].as_str().unwrap_or_default(),
            of(record)
        );
        text.push_str("| file | damage | trials | error | correct | dropped |\n|---|---|---|---|---|---|\n");
        for row in record["rows"].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row["file"].as_str().unwrap_or_default(),
                row["damage"].as_str().unwrap_or_default(),
                number(&row["trials"]),
                number(&row["error"]),
                number(&row["correct"]),
                number(&row["tolerated"])
            );
        }
        text.push('\n');
    }
}

fn beside_rocksdb(text: &mut String, records: &BTreeMap<String, Value>) {
    let Some(record) = records.get("damage") else { return };
    let _ = writeln!(
        text,
        "## The same damage, beside RocksDB {}\n\n\
         Small databases of the same contents, each written by the engine that reads it, every write synced, not closed \
         ({}). One file is damaged: single bits and whole bytes at one in {} places, cuts there, and the file as a whole. \
         Then the database is opened with the options that it was made with, and everything is read by gets and scans in \
         both directions, checksums verified. *Error*: something was reported, and all other answers were right. *Earlier*: nothing was \
         reported, and writes at the end are gone. *Wrong*: any other wrong answer, such as a hole in the writes or a \
         deleted key that is back. *Hang*: not done after {} seconds.\n",
        record["rocksdb"].as_str().unwrap_or_default(),
        of(record),
        number(&record["every"]),
        number(&record["hang_seconds"])
    );
    for (settings, what) in [
        ("defaults", "Options that nothing was said about have their defaults, paranoid checks among them."),
        (
            "strict",
            "AbsoluteConsistency, and in RocksDB also track_and_verify_wals_in_manifest and track_and_verify_wals. \
             Damage to logs alone: tables are checked the same way.",
        ),
    ] {
        let _ = writeln!(
            text,
            "{what}\n\n| file | damage | engine | trials | error | correct | earlier | wrong | crash | hang |\n\
             |---|---|---|---|---|---|---|---|---|---|"
        );
        let rows = record["rows"].as_array().into_iter().flatten();
        let rows: Vec<&Value> = rows.filter(|row| row["settings"] == settings).collect();
        for row in &rows {
            let word = |field: &str| row[field].as_str().unwrap_or_default();
            let counts = ["trials", "error", "correct", "older", "wrong", "crash", "hang"];
            let counts = counts.map(|field| number(&row[field])).join(" | ");
            let _ =
                writeln!(text, "| {} | {} | {} | {counts} |", word("file"), word("damage"), word("engine"));
        }
        text.push('\n');
        for engine in ["Ironstone", "RocksDB"] {
            let sum = |fields: &[&str]| {
                let own = rows.iter().filter(|row| row["engine"] == engine);
                own.flat_map(|row| fields.iter().filter_map(|field| row[*field].as_u64())).sum::<u64>()
            };
            let _ = writeln!(
                text,
                "{engine}: {} of {} trials lost something or gave a wrong answer without an error, {} crashed or hung.  ",
                grouped(sum(&["older", "wrong"])),
                grouped(sum(&["trials"])),
                grouped(sum(&["crash", "hang"]))
            );
        }
        text.push('\n');
    }
    text.push_str(
        "The smallest files (CURRENT, IDENTITY, OPTIONS) are damaged in one of the databases, MANIFESTs at four times as many \
         places. The files of the two differ in size and layout, and so does the number of trials. To stop at the first bad record of a \
         WAL without an error is what RocksDB documents for its default recovery mode. RocksDB runs in a process of its own \
         for each trial, Ironstone in threads of one: there a crash is a panic, and a hang would have ended the run.\n\n",
    );
}

fn mistakes(text: &mut String, records: &BTreeMap<String, Value>) {
    let Some(record) = records.get("mistakes") else { return };
    let Some(all) = record["mistakes"].as_array() else { return };
    let missed: Vec<&Value> = all.iter().filter(|one| one["caught_by"].is_null()).collect();
    let _ = writeln!(
        text,
        "## Do the harnesses see mistakes?\n\n{} mistakes were planted in the engine, one at a time; {} were caught ({}).",
        all.len(),
        all.len() - missed.len(),
        of(record)
    );
    let history: Vec<&Value> = all.iter().filter(|one| one["history"].is_string()).collect();
    let caught = history.iter().filter(|one| !one["caught_by"].is_null()).count();
    let _ =
        writeln!(text, "{} of them are past bugs of RocksDB, of which {caught} were caught.", history.len());
    if !missed.is_empty() {
        text.push_str("\nMissed:\n\n");
        for one in missed {
            let (name, what) =
                (one["name"].as_str().unwrap_or_default(), one["what"].as_str().unwrap_or_default());
            let _ = writeln!(text, "- `{name}`: {what}");
        }
    }
    text.push('\n');
}

fn fuzz(text: &mut String, records: &BTreeMap<String, Value>) {
    let Some(record) = records.get("fuzz") else { return };
    let Some(targets) = record.as_object() else { return };
    text.push_str("## Fuzzing\n\nlibFuzzer with AddressSanitizer, the last run of each target.\n\n");
    text.push_str(
        "| target | executions | seconds | edges | crashes | version |\n|---|---|---|---|---|---|\n",
    );
    for (name, target) in targets {
        let _ = writeln!(
            text,
            "| {name} | {} | {:.0} | {} | {} | {} |",
            number(&target["executions"]),
            target["seconds"].as_f64().unwrap_or_default(),
            number(&target["edges"]),
            number(&target["crashes"]),
            of(target)
        );
    }
    text.push('\n');
}
