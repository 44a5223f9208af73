//! Runs text cases: a command and its input, `----`, what it answers; cases are separated by blank lines.
//! `REWRITE=1` rewrites the answers.

use ironstone_vfs::{Env, WriteOptions};
use std::path::Path;

/// One case: the first line of the input is the command, the rest its lines.
pub(crate) struct Case<'a> {
    pub(crate) command: &'a str,
    pub(crate) arguments: Vec<&'a str>,
    pub(crate) lines: Vec<&'a str>,
}

/// Hands each case of `testdata/<name>` to `answer` and compares.
pub(crate) fn run(name: &str, mut answer: impl FnMut(&Case<'_>) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let env = Env::os();
    let text = String::from_utf8(env.fs.read_all(&path).expect("the test file")).expect("UTF-8");
    let mut rewritten = String::new();
    let mut failures = String::new();
    for block in text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let (input, expected) = block.split_once("\n----").unwrap_or((block, ""));
        let mut lines = input.lines().filter(|line| !line.starts_with('#'));
        let Some(head) = lines.next() else {
            rewritten += &format!("{block}\n\n"); // Comments only.
            continue;
        };
        let mut words = head.split_whitespace();
        let command = words.next().expect("a command");
        let case = Case { command, arguments: words.collect(), lines: lines.collect() };
        let answered = answer(&case);
        let answered = answered.trim_end();
        if answered != expected.trim() {
            failures +=
                &format!("\n{input}\n---- expected\n{}\n---- answered\n{answered}\n", expected.trim());
        }
        let separator = if answered.is_empty() { "" } else { "\n" };
        rewritten += &format!("{input}\n----{separator}{answered}\n\n");
    }
    if std::env::var_os("REWRITE").is_some() {
        let mut file = env.fs.create(&path, WriteOptions::default()).expect("the test file");
        file.append(format!("{}\n", rewritten.trim_end()).as_bytes()).expect("rewriting");
        file.close().expect("rewriting");
    } else {
        assert!(failures.is_empty(), "{name}:{failures}");
    }
}
