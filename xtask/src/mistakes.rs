//! `cargo xtask mistakes`: whether the tests find mistakes that were planted in the engine.
//!
//! All mistakes are planted in one copy of the repository, each behind a question whether it is chosen, so
//! that everything is compiled once and the repository itself stays clean.

mod catalogue;
mod copy;
mod harness;
mod report;

use catalogue::Mistake;
use harness::{Controlled, Harness, limit};
use report::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: cargo xtask mistakes [options]

  --list             print the mistakes
  --only NAME,...    try these
";

/// How many mistakes are tried at the same time.
const AT_ONCE: usize = 2;
/// Without a mistake, everything passes in less.
const CONTROL_LIMIT: Duration = Duration::from_secs(900);

/// Runs what `arguments` ask for.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the repository");
    let all = catalogue::load(root)?;
    let chosen = match arguments {
        [] => all.clone(),
        [list] if list == "--list" => {
            all.iter().for_each(|mistake| println!("{:<44} {}", mistake.name, mistake.what));
            return Ok(());
        }
        [only, names] if only == "--only" => choose(&all, names)?,
        _ => return Err(USAGE.to_owned()),
    };
    let start = Instant::now();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let dir = target.join("mistakes");
    let source = dir.join("source");
    copy::make(root, &source, &all)?;
    let logs = dir.join("logs");
    std::fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let names: BTreeSet<String> = chosen.iter().flat_map(|mistake| mistake.harness.clone()).collect();
    let harnesses = harness::build(&source, &dir.join("target"), &names)?;
    println!("built after {:.0} s", start.elapsed().as_secs_f64());

    let controlled = control(harnesses, &logs)?;
    let outcomes = try_all(&chosen, &controlled, &logs)?;
    let enough = report::print(&outcomes);
    println!("{:.0} s altogether", start.elapsed().as_secs_f64());
    let controls: BTreeMap<String, f64> =
        controlled.iter().map(|(name, (_, seconds))| (name.clone(), *seconds)).collect();
    report::store(root, &all, &outcomes, &controls)?;
    crate::reliability::write()?;
    if enough { Ok(()) } else { Err("fewer than 95 per cent of the mistakes were caught".to_owned()) }
}

fn choose(all: &[Mistake], names: &str) -> Result<Vec<Mistake>, String> {
    let find = |name: &str| {
        let found = all.iter().find(|mistake| mistake.name == name).cloned();
        found.ok_or_else(|| format!("there is no mistake {name}"))
    };
    names.split(',').map(find).collect()
}

/// Runs every harness without a mistake: what fails then would tell nothing about one.
fn control(harnesses: BTreeMap<String, Harness>, logs: &Path) -> Result<Controlled, String> {
    let mut controlled = BTreeMap::new();
    for (name, harness) in harnesses {
        let log = logs.join(format!("{}.control.log", name.replace(':', "-")));
        let ended = harness.run("", CONTROL_LIMIT, &log)?;
        if let Some(found) = ended.found {
            return Err(format!("{name} fails without a mistake: {found}; see {}", log.display()));
        }
        println!("control {name}: {:.1} s", ended.seconds);
        controlled.insert(name, (harness, ended.seconds));
    }
    Ok(Arc::new(controlled))
}

fn try_all(mistakes: &[Mistake], controlled: &Controlled, logs: &Path) -> Result<Vec<Outcome>, String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        while let Some(mistake) = mistakes.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = try_one(mistake, controlled, logs)?;
            let how = outcome.caught.as_ref().map_or("MISSED".to_owned(), |(by, how)| format!("{by}: {how}"));
            println!("{}: {how} after {:.1} s", mistake.name, outcome.seconds);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    };
    let results: Vec<Result<Vec<Outcome>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let mut outcomes = results.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let place = |outcome: &Outcome| mistakes.iter().position(|mistake| mistake.name == outcome.mistake.name);
    outcomes.sort_by_key(place);
    Ok(outcomes)
}

/// Tries one harness after the other until one finds the mistake.
fn try_one(mistake: &Mistake, controlled: &Controlled, logs: &Path) -> Result<Outcome, String> {
    let (mut caught, mut seconds) = (None, 0.0);
    for name in &mistake.harness {
        let (harness, control) = &controlled[name];
        let log = logs.join(format!("{}.{}.log", mistake.name, name.replace(':', "-")));
        let ended = harness.run(&mistake.name, limit(*control), &log)?;
        seconds += ended.seconds;
        caught = ended.found.map(|how| (name.clone(), how));
        if caught.is_some() {
            break;
        }
    }
    Ok(Outcome { mistake: mistake.clone(), caught, seconds })
}
