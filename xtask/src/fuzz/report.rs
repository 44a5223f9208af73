//! What a run of libFuzzer said, and `docs/reliability/fuzz.json`.

use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

const FILE: &str = "docs/reliability/fuzz.json";

/// How one target did.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    target: String,
    /// What the binaries were built from.
    commit: String,
    executions: u64,
    seconds: f64,
    /// Places in the code that were reached.
    edges: u64,
    /// Edges with how often, and values that were compared.
    features: u64,
    /// Inputs in the corpus when it began, and at the end.
    corpus: (u64, u64),
    peak_rss_mib: u64,
    /// 1 if it failed, since libFuzzer stops then.
    pub crashes: u64,
    /// The input that failed.
    artifact: Option<String>,
}

impl Outcome {
    /// Reads libFuzzer's output.
    pub fn parse(target: &str, commit: &str, text: &str, seconds: f64, succeeded: bool) -> Self {
        let statistic = |name: &str| {
            let line = text.lines().rev().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        let status: Vec<&str> = text.lines().filter(|line| line.contains(" cov: ")).collect();
        let first = status.iter().find(|line| line.contains("INITED")).or(status.first()).unwrap_or(&"");
        let last = status.last().unwrap_or(&"");
        let artifact =
            text.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path));
        Self {
            target: target.to_owned(),
            commit: commit.to_owned(),
            executions: statistic("stat::number_of_executed_units"),
            seconds,
            edges: number_after(last, "cov: "),
            features: number_after(last, "ft: "),
            corpus: (number_after(first, "corp: "), number_after(last, "corp: ")),
            peak_rss_mib: statistic("stat::peak_rss_mb"),
            crashes: u64::from(!succeeded),
            artifact: artifact.map(str::to_owned),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "executions": self.executions,
            "seconds": self.seconds.round(),
            "edges": self.edges,
            "features": self.features,
            "corpus_at_start": self.corpus.0,
            "corpus_at_end": self.corpus.1,
            "peak_rss_mib": self.peak_rss_mib,
            "crashes": self.crashes,
            "commit": self.commit,
            "date": crate::campaign::today(),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, executions, seconds, edges, features, corpus, crashes, .. } = self;
        write!(f, "{target:14} {executions:>10} executions in {seconds:>5.0} s, {edges:>6} edges, ")?;
        write!(f, "{features:>6} features, corpus {} -> {}, {crashes} crashes", corpus.0, corpus.1)?;
        match &self.artifact {
            Some(path) => write!(
                f,
                "\n  replay: IRONSTONE_FUZZ_INPUT={target}:$PWD/{path} cargo test --profile checked -p ironstone-fuzz"
            ),
            None => Ok(()),
        }
    }
}

/// The number that follows `name` in a status line.
fn number_after(line: &str, name: &str) -> u64 {
    let rest = line.split_once(name).map_or("", |(_, rest)| rest);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or(0)
}

/// Puts `outcomes` in the place of what the file says about the same targets.
pub fn write(outcomes: &[Outcome]) -> Result<(), String> {
    let text = std::fs::read_to_string(FILE).unwrap_or_default();
    let mut all: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    for outcome in outcomes {
        all.insert(outcome.target.clone(), outcome.to_json());
    }
    let dir = Path::new(FILE).parent().expect("a file in a directory");
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(FILE, text + "\n"));
    written.map_err(|error| format!("{FILE}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
#2\tINITED cov: 10 ft: 11 corp: 3/9b exec/s: 0 rss: 40Mb
#64\tNEW    cov: 120 ft: 130 corp: 17/90b lim: 4 exec/s: 0 rss: 41Mb
#99\tDONE   cov: 121 ft: 140 corp: 18/1Kb lim: 4 exec/s: 9 rss: 42Mb
stat::number_of_executed_units: 99
stat::peak_rss_mb:              42
";

    #[test]
    fn figures_are_read_from_the_output() {
        let outcome = Outcome::parse("wal", "c0ffee", TEXT, 11.0, true);
        assert_eq!((outcome.executions, outcome.edges, outcome.features), (99, 121, 140));
        assert_eq!((outcome.corpus, outcome.peak_rss_mib, outcome.crashes), ((3, 18), 42, 0));
    }

    #[test]
    fn a_failure_counts_and_names_its_input() {
        let text = format!("{TEXT}Test unit written to fuzz/artifacts/wal/crash-1\n");
        let outcome = Outcome::parse("wal", "c0ffee", &text, 11.0, false);
        assert_eq!((outcome.crashes, outcome.artifact.as_deref()), (1, Some("fuzz/artifacts/wal/crash-1")));
        assert!(outcome.to_string().contains("IRONSTONE_FUZZ_INPUT=wal:"));
    }
}
