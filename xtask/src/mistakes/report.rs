//! What came of the mistakes, on the screen and in docs/reliability/mistakes.json.

use super::catalogue::Mistake;
use crate::campaign;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const FILE: &str = "docs/reliability/mistakes.json";

/// What came of one mistake.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub mistake: Mistake,
    /// The harness that caught it, and how: a test, or how the process ended.
    pub caught: Option<(String, String)>,
    /// Until it was caught, over all harnesses tried.
    pub seconds: f64,
}

/// Prints a table and what it comes to. Answers whether enough were caught.
pub fn print(outcomes: &[Outcome]) -> bool {
    for outcome in outcomes {
        let how = match &outcome.caught {
            Some((harness, how)) => format!("{harness}: {how}"),
            None => "MISSED".to_owned(),
        };
        println!("{:<44} {:>7.1} s  {how}", outcome.mistake.name, outcome.seconds);
    }
    let caught: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.caught.is_some()).collect();
    let median = median(caught.iter().map(|outcome| outcome.seconds).collect());
    println!("{} planted, {} caught, median {median:.1} s", outcomes.len(), caught.len());
    for missed in outcomes.iter().filter(|outcome| outcome.caught.is_none()) {
        println!("missed: {} ({})", missed.mistake.name, missed.mistake.what);
    }
    caught.len() * 100 >= outcomes.len() * 95
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or_default()
}

fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// Writes the results down. Those of mistakes that did not run this time stay.
pub fn store(
    root: &Path,
    all: &[Mistake],
    outcomes: &[Outcome],
    controls: &BTreeMap<String, f64>,
) -> Result<(), String> {
    let path = root.join(FILE);
    let old: Value =
        std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let (commit, date) = (campaign::version(), campaign::today());
    let entry = |mistake: &Mistake| -> Option<Value> {
        let Some(outcome) = outcomes.iter().find(|outcome| outcome.mistake.name == mistake.name) else {
            let known = old["mistakes"].as_array()?;
            return known.iter().find(|known| known["name"] == *mistake.name).cloned();
        };
        let (harness, how) = outcome.caught.clone().unzip();
        Some(json!({ "name": mistake.name, "what": mistake.what, "history": mistake.history,
            "file": mistake.edits[0].file, "commit": commit, "date": date, "caught_by": harness, "how": how,
            "seconds": tenths(outcome.seconds) }))
    };
    let entries: Vec<Value> = all.iter().filter_map(entry).collect();
    let caught = entries.iter().filter(|entry| !entry["caught_by"].is_null());
    let seconds: Vec<f64> = caught.filter_map(|entry| entry["seconds"].as_f64()).collect();
    let missed: Vec<&Value> =
        entries.iter().filter(|entry| entry["caught_by"].is_null()).map(|entry| &entry["name"]).collect();
    let mut control_seconds = old["control_seconds"].as_object().cloned().unwrap_or_default();
    control_seconds.extend(controls.iter().map(|(name, seconds)| (name.clone(), tenths(*seconds).into())));
    let report = json!({ "commit": commit, "date": date, "planted": entries.len(), "caught": seconds.len(),
        "missed": missed, "median_seconds": tenths(median(seconds)), "control_seconds": control_seconds,
        "mistakes": entries });
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n";
    std::fs::create_dir_all(path.parent().expect("it is in docs")).map_err(|error| error.to_string())?;
    std::fs::write(&path, text).map_err(|error| format!("{FILE}: {error}"))
}
