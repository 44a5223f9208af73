//! What changes which tables there are and where they lie, and never what they hold; and reads that show more than values.

use super::{Failure, RandomRun};
use ironstone::{
    BottommostPolicy, Code, ColumnFamily, CompactFilesOptions, CompactRangeOptions, MultiCfIterator,
    ReadOptions,
};
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use std::collections::BTreeMap;

/// The values of a key: of which of some column families, and what.
type Groups = Vec<(usize, Vec<u8>)>;

impl RandomRun {
    /// Compacts some tables by name, moves level 0 or the last level, or wants some compacted. What cannot be done is refused.
    pub(super) fn reshape(&mut self) -> Result<(), Failure> {
        let name = self.any_family();
        let level = self.rng.random_range(0..self.families[&name].num_levels.max(2) as usize);
        let cf = self.family(&name);
        let (what, result) = match self.rng.random_range(0..4) {
            0 => {
                let mut files = self.db().live_files();
                files.retain(|file| file.column_family == name);
                files.shuffle(&mut self.rng);
                files.truncate(self.rng.random_range(1..6));
                let numbers: Vec<_> = files.iter().map(|file| file.number).collect();
                let options = CompactFilesOptions {
                    max_subcompactions: *[None, Some(3)].choose(&mut self.rng).expect("not empty"),
                    allow_trivial_move: self.rng.random(),
                    output_file_size_limit: *[None, Some(3000)].choose(&mut self.rng).expect("not empty"),
                    ..CompactFilesOptions::default()
                };
                let result = self.db().compact_files(&options, &cf, &numbers, level);
                (format!("compact {numbers:?} of {name} to level {level}, {options:?}"), result)
            }
            1 => (format!("promote {name} to {level}"), self.db().promote_level0(&cf, level)),
            2 => {
                let mut range = [self.key_of(&name), self.key_of(&name)];
                range.sort();
                let [begin, end] = &range;
                let suggested = self.db().suggest_compact_range(&cf, Some(begin), Some(end));
                (format!("suggest a range of {name}"), suggested)
            }
            _ => {
                let policies = (0..4).filter_map(BottommostPolicy::from_byte).collect::<Vec<_>>();
                let options = CompactRangeOptions {
                    bottommost_level_compaction: *policies.choose(&mut self.rng).expect("there are four"),
                    exclusive_manual_compaction: self.rng.random(),
                    max_subcompactions: *[None, Some(3)].choose(&mut self.rng).expect("not empty"),
                    change_level: true,
                    target_level: self.rng.random_bool(0.7).then_some(level),
                    ..CompactRangeOptions::default()
                };
                let result = self.db().compact_range(&options, &cf, None, None);
                (format!("change the level of {name}: {options:?}"), result)
            }
        };
        self.note(|| format!("{what}: {result:?}"));
        match result {
            Err(error)
                if !matches!(error.code(), Code::InvalidArgument | Code::NotSupported | Code::Aborted) =>
            {
                Err(format!("{what}: {error}"))
            }
            _ => self.compare_family(&name, &ReadOptions::default(), &self.model),
        }
    }

    /// Reads what a key was put and merged to, in parts, which together are its value.
    pub(super) fn get_merge_operands(&mut self) -> Result<(), Failure> {
        let name = self.any_family();
        for _ in 0..8 {
            let key = self.key_of(&name);
            let (options, model) = self.moment(&name);
            let cf = self.family(&name);
            let expected = model.family(&name).get(&key);
            let shown = format!("the operands of {name} {} at {:?}", key.escape_ascii(), options.snapshot);
            let parts = self.db().get_merge_operands(&options, &cf, &key, usize::MAX);
            let parts = parts.map_err(|error| format!("{shown}: {error}"))?;
            let joined = parts.iter().map(|part| &**part).collect::<Vec<&[u8]>>().join(&b',');
            if (!parts.is_empty()).then_some(&joined) != expected {
                let joined = joined.escape_ascii();
                return Err(format!("{shown} are {joined}, {} of them", parts.len()));
            }
            if parts.len() > 1 {
                match self.db().get_merge_operands(&options, &cf, &key, parts.len() - 1) {
                    Err(error) if error.code() == Code::Incomplete => {}
                    // A job of the background has made fewer of them meanwhile.
                    Ok(fewer)
                        if fewer.len() < parts.len()
                            && fewer.iter().map(|part| &**part).collect::<Vec<&[u8]>>().join(&b',')
                                == joined => {}
                    other => return Err(format!("{shown}, one less than there are: {other:?}")),
                }
            }
        }
        Ok(())
    }

    /// Walks over several column families at once.
    pub(super) fn walk_over_families(&mut self) -> Result<(), Failure> {
        let mut names: Vec<String> = self.families.keys().cloned().collect();
        names.shuffle(&mut self.rng);
        names.truncate(self.rng.random_range(1..=names.len()));
        let without_past = names.iter().find(|name| !self.has_past(name)).cloned();
        let (mut options, model) = self.moment(&without_past.unwrap_or_else(|| names[0].clone()));
        options.total_order_seek = true;
        let mut expected: BTreeMap<Vec<u8>, Groups> = BTreeMap::new();
        for (place, name) in names.iter().enumerate() {
            for (key, value) in model.family(name) {
                expected.entry(key.clone()).or_default().push((place, value.clone()));
            }
        }
        let cfs: Vec<ColumnFamily> = names.iter().map(|name| self.family(name)).collect();
        let iter = self.db().iter_over_cfs(&options, &cfs.iter().collect::<Vec<_>>());
        let mut iter = iter.map_err(|error| format!("iter_over_cfs: {error}"))?;
        let target = self.key_of(&names[0]);
        let wrong = |what: &str, found: &Option<(Vec<u8>, Groups)>| {
            let found = found.as_ref().map(|(key, groups)| (key.escape_ascii().to_string(), groups.len()));
            format!("over {names:?} {what} at {:?}: on {found:?}", options.snapshot)
        };
        let ways: [(&str, Option<&[u8]>, bool); 4] = [
            ("forward", None, true),
            ("backward", None, false),
            ("from a key", Some(&target), true),
            ("back from a key", Some(&target), false),
        ];
        for (what, from, forward) in ways {
            let within = |key: &Vec<u8>| match forward {
                true => from.is_none_or(|from| key.as_slice() >= from),
                false => from.is_none_or(|from| key.as_slice() <= from),
            };
            let mut left: Vec<(&Vec<u8>, &Groups)> = expected.iter().filter(|(key, _)| within(key)).collect();
            if !forward {
                left.reverse();
            }
            let mut moved = match (from, forward) {
                (None, true) => iter.seek_to_first(),
                (None, false) => iter.seek_to_last(),
                (Some(from), true) => iter.seek(from),
                (Some(from), false) => iter.seek_for_prev(from),
            };
            for (key, groups) in left {
                let found = shown_by(&iter);
                moved.map_err(|error| format!("iter_over_cfs: {error}"))?;
                if found.as_ref().map(|(key, groups)| (key, groups)) != Some((key, groups)) {
                    return Err(wrong(what, &found));
                }
                if iter.value() != groups.last().map(|(_, value)| value.as_slice()) {
                    return Err(format!("{}: a value of another column family", wrong(what, &found)));
                }
                moved = if forward { iter.next() } else { iter.prev() };
            }
            if moved.map_err(|error| format!("iter_over_cfs: {error}"))? || iter.valid() {
                return Err(wrong(what, &shown_by(&iter)));
            }
        }
        Ok(())
    }
}

fn shown_by(iter: &MultiCfIterator) -> Option<(Vec<u8>, Groups)> {
    let groups = iter.groups().map(|(place, value)| (place, value.to_vec())).collect();
    Some((iter.key()?.to_vec(), groups))
}
