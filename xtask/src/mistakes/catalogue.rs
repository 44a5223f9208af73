//! The mistakes: what each one is, where it is planted, and which tests are to find it.
//!
//! They stand in `crates/testkit/mistakes/*.toml`, one file for each area:
//!
//! ```text
//! [[mistake]]
//! name = "wal-sync-left-out"
//! what = "A synced write is acknowledged without a sync."
//! history = "RocksDB 7.7.0 #10560"            # if somebody has made it
//! file = "crates/db/src/write/commit.rs"
//! find = "self.file.sync()"                   # exactly once in the file
//! replace = "if mistake!() { Ok(()) } else { self.file.sync() }"
//! harness = ["api", "crash"]                  # in the order in which they are tried
//! ```
//! `mistake!()` stands for the question whether this mistake is chosen. One that takes several places has
//! the others in `[[mistake.also]]`, with `file`, `find` and `replace`.

use std::collections::BTreeMap;
use std::path::Path;

/// Where the files of mistakes are.
pub const DIR: &str = "crates/testkit/mistakes";

/// One mistake that a developer could have made.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// In kebab case.
    pub name: String,
    /// What was got wrong, and what it costs.
    pub what: String,
    /// Who made it.
    pub history: Option<String>,
    /// Where it is planted; not empty.
    pub edits: Vec<Edit>,
    /// The names of the harnesses to try.
    pub harness: Vec<String>,
}

/// A change of one place.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The source file.
    pub file: String,
    /// The text that it takes the place of.
    pub find: String,
    /// What stands there instead. Without the mistake it does what the text did.
    pub replace: String,
}

/// What stands for the condition in `replace`.
const CONDITION: &str = "mistake!()";

/// All mistakes, in the order of their files.
pub fn load(root: &Path) -> Result<Vec<Mistake>, String> {
    let dir = root.join(DIR);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .map_err(|error| format!("{}: {error}", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let mut mistakes: Vec<Mistake> = Vec::new();
    for path in files {
        let place = path.display();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{place}: {error}"))?;
        let table: toml::Table = text.parse().map_err(|error| format!("{place}: {error}"))?;
        for entry in table.get("mistake").and_then(toml::Value::as_array).into_iter().flatten() {
            let mistake = Mistake::of(entry).map_err(|error| format!("{place}: {error}"))?;
            if mistakes.iter().any(|known| known.name == mistake.name) {
                return Err(format!("{place}: {} is there twice", mistake.name));
            }
            mistakes.push(mistake);
        }
    }
    Ok(mistakes)
}

impl Mistake {
    fn of(entry: &toml::Value) -> Result<Self, String> {
        let name = entry.get("name").and_then(toml::Value::as_str).ok_or("a mistake without a name")?;
        let optional = |field: &str| entry.get(field).and_then(toml::Value::as_str).map(str::to_owned);
        let text = |field: &str| optional(field).ok_or_else(|| format!("{name} has no `{field}`"));
        let also = entry.get("also").and_then(toml::Value::as_array).into_iter().flatten();
        let edits = std::iter::once(entry).chain(also).map(|edit| Edit::of(edit, name));
        let harness = entry.get("harness").and_then(toml::Value::as_array).into_iter().flatten();
        let harness: Vec<_> = harness.filter_map(toml::Value::as_str).map(str::to_owned).collect();
        if harness.is_empty() {
            return Err(format!("{name} has no `harness`"));
        }
        Ok(Self {
            name: name.to_owned(),
            what: text("what")?,
            history: optional("history"),
            edits: edits.collect::<Result<_, _>>()?,
            harness,
        })
    }
}

impl Edit {
    /// The edit that `entry` describes, for the mistake `name`.
    fn of(entry: &toml::Value, name: &str) -> Result<Self, String> {
        let text = |field: &str| {
            let text = entry.get(field).and_then(toml::Value::as_str).map(str::to_owned);
            text.ok_or_else(|| format!("{name} has no `{field}`"))
        };
        let condition = format!("ironstone_base::mistake::is({name:?})");
        let replace = text("replace")?.replace(CONDITION, &condition);
        Ok(Self { file: text("file")?, find: text("find")?, replace })
    }
}

/// Source files with all of `mistakes` planted in them; `read` gives the text of a file.
pub fn plant(
    mistakes: &[Mistake],
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut by_file: BTreeMap<&str, Vec<(&str, &Edit)>> = BTreeMap::new();
    for mistake in mistakes {
        for edit in &mistake.edits {
            by_file.entry(&edit.file).or_default().push((&mistake.name, edit));
        }
    }
    let mut planted = BTreeMap::new();
    for (file, edits) in by_file {
        planted.insert(file.to_owned(), plant_in(file, &read(file)?, &edits)?);
    }
    Ok(planted)
}

/// `text`, the contents of `file`, after the edits of mistakes with these names.
fn plant_in(file: &str, text: &str, edits: &[(&str, &Edit)]) -> Result<String, String> {
    let mut places = Vec::new();
    for (name, edit) in edits {
        let found: Vec<usize> = text.match_indices(&edit.find).map(|(at, _)| at).collect();
        match found[..] {
            [at] => places.push((at, *name, *edit)),
            _ => {
                let count = found.len();
                return Err(format!(
                    "{name}: its text is {count} times in {file}, not once: plant it anew (in {DIR})"
                ));
            }
        }
    }
    places.sort_by_key(|(at, ..)| *at);
    let mut planted = String::new();
    let (mut end, mut before) = (0, "");
    for (at, name, edit) in places {
        if at < end {
            return Err(format!("{file}: {before} and {name} are planted in the same text"));
        }
        planted.push_str(&text[end..at]);
        planted.push_str(&edit.replace);
        (end, before) = (at + edit.find.len(), name);
    }
    planted.push_str(&text[end..]);
    Ok(planted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the repository")
    }

    /// Whoever moves code finds here which mistakes to plant anew.
    #[test]
    fn every_mistake_still_has_its_place() {
        let mistakes = load(root()).expect("the files of mistakes can be read");
        assert!(mistakes.len() >= 70, "{} mistakes", mistakes.len());
        let read = |file: &str| {
            std::fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"))
        };
        plant(&mistakes, read).unwrap();
    }

    #[test]
    fn every_mistake_is_looked_for_by_harnesses_that_there_are() {
        for mistake in load(root()).expect("the files of mistakes can be read") {
            for name in &mistake.harness {
                assert!(super::super::harness::is(root(), name), "{}: {name}", mistake.name);
            }
        }
    }

    #[test]
    fn two_mistakes_do_not_share_a_place() {
        let mistake = |name: &str, find: &str| Mistake {
            name: name.to_owned(),
            what: String::new(),
            history: None,
            edits: vec![Edit {
                file: "a.rs".to_owned(),
                find: find.to_owned(),
                replace: format!("<{name}>"),
            }],
            harness: Vec::new(),
        };
        let plant = |finds: &[(&str, &str)]| {
            let mistakes: Vec<_> = finds.iter().map(|(name, find)| mistake(name, find)).collect();
            plant(&mistakes, |_| Ok("one two three one".to_owned())).map(|files| files["a.rs"].clone())
        };
        assert_eq!(plant(&[("b", "three"), ("a", "two ")]).unwrap(), "one <a><b> one");
        assert!(plant(&[("a", "two"), ("b", "o three")]).unwrap_err().contains("same text"));
        assert!(plant(&[("a", "one")]).unwrap_err().contains("2 times"));
        assert!(plant(&[("a", "four")]).unwrap_err().contains("0 times"));
    }
}
