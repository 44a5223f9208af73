use crate::offpeak::DailyOffpeak;
use crate::options::{
    CompactionOptions, CompactionPriority, CompactionStyle, FifoOptions, StopStyle, UniversalOptions,
};
use crate::picker::manual::{
    BottommostPolicy, ManualCompaction, ManualPick, NamedFilesOptions, drop_file, pick_files, promote_level0,
    refit_last_level,
};
use crate::picker::{PickContext, Wanted, pick_automatic};
use crate::plan::{CompactionPlan, PlanKind};
use crate::running::{CompactionId, RunningCompactions};
use crate::shape::LevelShape;
use crate::text_test;
use ironstone_base::sync::Arc;
use ironstone_base::{
    FileNumber, InternalKeyBuf, InternalKeyComparator, SequenceNumber, UserComparator, ValueType,
};
use ironstone_sst::CompressionKind;
use ironstone_version::{FileMetaData, LevelFiles, Version};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// A column family without files: metadata only.
struct Tree {
    options: CompactionOptions,
    levels: Vec<Vec<Arc<FileMetaData>>>,
    cursors: BTreeMap<usize, InternalKeyBuf>,
    running: RunningCompactions,
    started: Vec<(CompactionId, CompactionPlan)>,
    manual: Option<ManualCompaction>,
    next_number: u64,
    next_sequence: u64,
    now: u64,
    often_read: Vec<FileNumber>,
    threshold: SequenceNumber,
    wanted: Wanted,
}

impl Tree {
    fn new() -> Self {
        let options =
            CompactionOptions { compression: CompressionKind::None, ..CompactionOptions::default() };
        Self {
            levels: vec![Vec::new(); options.num_levels],
            options,
            cursors: BTreeMap::new(),
            running: RunningCompactions::new(UserComparator::Bytewise),
            started: Vec::new(),
            manual: None,
            next_number: 100,
            next_sequence: 1000,
            now: 0,
            threshold: SequenceNumber::ZERO,
            often_read: Vec::new(),
            wanted: Wanted::All,
        }
    }

    fn version(&self) -> Version {
        let order = InternalKeyComparator::new(self.options.comparator.clone());
        let mut version = Version::empty(order.clone(), self.levels.len());
        version.levels =
            self.levels.iter().map(|files| Arc::new(LevelFiles::new(&order, files.clone()))).collect();
        version.compact_cursors = self.cursors.clone();
        version
    }

    fn context(&self) -> PickContext<'_> {
        PickContext {
            now_seconds: self.now,
            bottommost_threshold: self.threshold,
            compensate: None,
            suggested: None,
            often_read: &self.often_read,
            wanted: self.wanted,
        }
    }

    fn pick(&self) -> Option<CompactionPlan> {
        pick_automatic(&self.version(), &self.options, &self.running, &self.context())
    }

    /// What is next of everything, of what writes the last level, and of the rest: the first is one of the other two.
    fn pick_for_threads_of_each_kind(&mut self) -> [Option<CompactionPlan>; 3] {
        let before = self.wanted;
        let [any, last, rest] = [Wanted::All, Wanted::LastLevel, Wanted::AllButLastLevel].map(|wanted| {
            self.wanted = wanted;
            self.pick()
        });
        self.wanted = before;
        let is_last = |plan: &CompactionPlan| plan.rewrites_last_level(&self.options);
        assert!(last.as_ref().is_none_or(is_last), "{last:?}");
        assert!(!rest.as_ref().is_some_and(is_last), "{rest:?}");
        let same = if any.as_ref().is_some_and(is_last) { &last } else { &rest };
        let text = |plan: &Option<CompactionPlan>| plan.as_ref().map(show_plan);
        assert!(any.is_none() || text(&any) == text(same), "{any:?}, {last:?}, {rest:?}");
        [any, last, rest]
    }

    fn start(&mut self, plan: CompactionPlan) {
        self.started.push((self.running.add(&plan), plan));
    }

    /// Installs `plan` with `outputs` in place of its inputs.
    fn install(&mut self, plan: &CompactionPlan, outputs: Vec<FileMetaData>) {
        let edit = plan.edit(ironstone_base::ColumnFamilyId::DEFAULT, outputs);
        for (level, number) in edit.deleted_files {
            let before = self.levels[level].len();
            self.levels[level].retain(|file| file.number != number);
            assert_eq!(self.levels[level].len() + 1, before, "an input of {plan} was not there");
        }
        for (level, file) in edit.new_files {
            self.levels[level].push(file);
        }
        self.cursors.extend(edit.compact_cursors);
        self.sort();
    }

    fn sort(&mut self) {
        let order = InternalKeyComparator::new(self.options.comparator.clone());
        self.levels[0].sort_by_key(|file| std::cmp::Reverse((file.epoch_number, file.number)));
        for files in &mut self.levels[1..] {
            files.sort_by(|a, b| order.compare(a.smallest.as_key(), b.smallest.as_key()));
        }
    }

    /// What `plan` would write if it dropped nothing: its key range in `count` files.
    fn one_output(&mut self, plan: &CompactionPlan) -> Vec<FileMetaData> {
        let files: Vec<_> = plan.input_files().map(|(_, file)| file.clone()).collect();
        let order = InternalKeyComparator::new(self.options.comparator.clone());
        let smallest =
            files.iter().map(|file| &file.smallest).min_by(|a, b| order.compare(a.as_key(), b.as_key()));
        let largest =
            files.iter().map(|file| &file.largest).max_by(|a, b| order.compare(a.as_key(), b.as_key()));
        let size = files.iter().map(|file| file.file_size).sum();
        let (mut smallest, mut largest) = (smallest.unwrap().clone(), largest.unwrap().clone());
        if plan.bottommost {
            smallest.set_trailer(SequenceNumber::ZERO, ValueType::Value);
            largest.set_trailer(SequenceNumber::ZERO, ValueType::Value);
        }
        self.next_number += 1;
        let mut file = FileMetaData::new(FileNumber(self.next_number - 1), size, smallest, largest);
        if !plan.bottommost {
            file.smallest_seqno = files.iter().map(|file| file.smallest_seqno).min().unwrap();
            file.largest_seqno = files.iter().map(|file| file.largest_seqno).max().unwrap();
        }
        file.epoch_number = files.iter().map(|file| file.epoch_number).min().unwrap();
        file.oldest_ancester_time = files.iter().map(|file| file.oldest_ancester_time).min().unwrap();
        file.file_creation_time = self.now;
        vec![file]
    }

    fn run(&mut self, plan: &CompactionPlan) {
        let outputs = if plan.kind == PlanKind::Rewrite { self.one_output(plan) } else { Vec::new() };
        self.install(plan, outputs);
    }

    fn show(&self) -> String {
        let mut text = String::new();
        for (level, files) in self.levels.iter().enumerate().filter(|(_, files)| !files.is_empty()) {
            let files: Vec<String> = files.iter().map(|file| show_file(file)).collect();
            text += &format!("L{level}: {}\n", files.join(" "));
        }
        text
    }

    // `7:a-f`, then in any order `=10M` (size), `#5..9` (sequence numbers), `@100` (age of the data), `*`
    // (marked).
    fn define(&mut self, lines: &[&str]) {
        for files in &mut self.levels {
            files.clear();
        }
        self.running = RunningCompactions::new(UserComparator::Bytewise);
        self.started.clear();
        let mut epoch = 1000;
        for line in lines {
            let (level, files) = line.split_once(':').expect("L<n>: files");
            let level: usize = level[1..].parse().expect("a level");
            for word in files.split_whitespace() {
                epoch -= 1; // Level 0 is listed newest first.
                self.levels[level].push(Arc::new(parse_file(word, epoch)));
            }
        }
    }

    fn set(&mut self, words: &[&str]) {
        for word in words {
            let (name, value) = word.split_once('=').expect("name=value");
            let options = &mut self.options;
            match name {
                "base" => options.max_bytes_for_level_base = parse_size(value),
                "multiplier" => options.max_bytes_for_level_multiplier = value.parse().unwrap(),
                "trigger" => options.level0_file_num_compaction_trigger = value.parse().unwrap(),
                "dynamic" => options.level_compaction_dynamic_level_bytes = value.parse().unwrap(),
                "file_size" => options.target_file_size_base = parse_size(value),
                "file_size_multiplier" => options.target_file_size_multiplier = value.parse().unwrap(),
                "max_compaction" => options.max_compaction_bytes = parse_size(value),
                "levels" => {
                    options.num_levels = value.parse().unwrap();
                    self.levels.resize(options.num_levels, Vec::new());
                }
                "pri" => {
                    let all = (0..5).filter_map(CompactionPriority::from_byte);
                    options.compaction_pri = all.into_iter().find(|pri| pri.name() == value).unwrap();
                }
                "ttl" => options.ttl = value.parse().unwrap(),
                "bottommost_delay" => {
                    options.bottommost_file_compaction_delay = value.parse().unwrap();
                }
                "periodic" => options.periodic_compaction_seconds = value.parse().unwrap(),
                "offpeak" => options.daily_offpeak = DailyOffpeak::parse(value).unwrap(),
                "filter" => options.has_compaction_filter = value.parse().unwrap(),
                "move" => options.allow_trivial_move = value.parse().unwrap(),
                "style" => {
                    options.style = match value {
                        "level" => CompactionStyle::Level,
                        "universal" => CompactionStyle::Universal,
                        "fifo" => CompactionStyle::Fifo,
                        other => panic!("unknown style {other}"),
                    }
                }
                "size_ratio" => options.universal.size_ratio = value.parse().unwrap(),
                "min_width" => options.universal.min_merge_width = value.parse().unwrap(),
                "max_width" => options.universal.max_merge_width = value.parse().unwrap(),
                "size_amp" => options.universal.max_size_amplification_percent = value.parse().unwrap(),
                "read_amp" => options.universal.max_read_amp = value.parse().unwrap(),
                "compress" => options.universal.compression_size_percent = value.parse().unwrap(),
                "universal_move" => options.universal.allow_trivial_move = value.parse().unwrap(),
                "incremental" => options.universal.incremental = value.parse().unwrap(),
                "stop" => {
                    let similar = value == "similar";
                    options.universal.stop_style =
                        if similar { StopStyle::SimilarSize } else { StopStyle::TotalSize };
                }
                "codec" => {
                    options.compression =
                        if value == "none" { CompressionKind::None } else { CompressionKind::Lz4 }
                }
                "memtable" => options.write_buffer_size = parse_size(value) as usize,
                "stop_writes" => options.level0_stop_writes_trigger = value.parse().unwrap(),
                "table_files" => options.fifo.max_table_files_size = parse_size(value),
                "merge" => options.fifo.allow_compaction = value.parse().unwrap(),
                "ingest_behind" => options.allow_ingest_behind = value.parse().unwrap(),
                "wanted" => {
                    self.wanted = match value {
                        "all" => Wanted::All,
                        "last_level" => Wanted::LastLevel,
                        "all_but_last_level" => Wanted::AllButLastLevel,
                        other => panic!("wanted: {other}"),
                    }
                }
                "now" => self.now = value.parse().unwrap(),
                "released_below" => self.threshold = SequenceNumber(value.parse().unwrap()),
                _ => panic!("unknown option {name}"),
            }
        }
    }

    fn answer(&mut self, case: &text_test::Case<'_>) -> String {
        match case.command {
            "set" => {
                self.set(&case.arguments);
                String::new()
            }
            "define" => {
                self.define(&case.lines);
                self.show()
            }
            "show" => self.show(),
            // New files in level 0, the newest last.
            "flush" => {
                for word in &case.arguments {
                    self.next_sequence += 1;
                    self.levels[0].insert(0, Arc::new(parse_file(word, self.next_sequence)));
                }
                self.show()
            }
            // What would go next.
            "pick" => self.pick().map_or("nothing".to_owned(), |plan| show_plan(&plan)),
            // Picks and leaves it running.
            "start" => match self.pick() {
                None => "nothing".to_owned(),
                Some(plan) => {
                    let text = show_plan(&plan);
                    self.start(plan);
                    text
                }
            },
            // Files that reads would be better off without, the worst first.
            "often_read" => {
                let numbers = case.arguments.iter().map(|word| FileNumber(word.parse().unwrap()));
                self.often_read = numbers.collect();
                String::new()
            }
            // Ends the oldest that runs.
            "finish" => {
                if self.started.is_empty() {
                    return "nothing runs".to_owned();
                }
                let (id, plan) = self.started.remove(0);
                self.run(&plan);
                self.running.remove(id);
                self.show()
            }
            // Picks and runs until nothing is due.
            "settle" => {
                let mut text = String::new();
                for _ in 0..50 {
                    let Some(plan) = self.pick() else {
                        return text + &self.show();
                    };
                    text += &format!("{}\n", show_plan(&plan));
                    self.run(&plan);
                }
                text + "endless"
            }
            "shape" => {
                let version = self.version();
                let shape = LevelShape::new(&version, &self.options);
                let mut text = format!("base level {}\n", shape.base_level);
                if let Some(level) = shape.lowest_unnecessary_level {
                    text += &format!("unnecessary up to {level}\n");
                }
                for (level, &bytes) in
                    shape.max_bytes.iter().enumerate().skip(1).filter(|(_, bytes)| **bytes < u64::MAX)
                {
                    text += &format!("L{level}: {}\n", show_size(bytes));
                }
                for score in shape.scores(&version, &self.options, &self.running, &self.context()) {
                    if score.score > 0.0 {
                        text += &format!("score of L{}: {:.3}\n", score.level, score.score);
                    }
                }
                text + &format!(
                    "pending {}",
                    show_size(shape.pending_compaction_bytes(&version, &self.options))
                )
            }
            // manual <begin or -> <end or -> <policy> [exclusive]
            "manual" => {
                let bound = |word: &&str| (*word != "-").then(|| word.as_bytes().to_vec());
                let policy = match case.arguments[2] {
                    "skip" => BottommostPolicy::Skip,
                    "filter" => BottommostPolicy::IfHaveCompactionFilter,
                    "force" => BottommostPolicy::Force,
                    "force_optimized" => BottommostPolicy::ForceOptimized,
                    other => panic!("unknown policy {other}"),
                };
                let (begin, end) = (bound(&case.arguments[0]), bound(&case.arguments[1]));
                let next = FileNumber(self.next_number);
                let manual = ManualCompaction::new(begin.as_deref(), end.as_deref(), policy, next);
                self.manual = Some(manual.exclusive(case.arguments.contains(&"exclusive")));
                self.go_on_manually()
            }
            "continue" => self.go_on_manually(),
            // files <number>... -> <level>
            "files" => {
                let arrow = case.arguments.iter().position(|word| *word == "->").expect("-> level");
                let numbers: Vec<FileNumber> =
                    case.arguments[..arrow].iter().map(|word| FileNumber(word.parse().unwrap())).collect();
                let level = case.arguments[arrow + 1].parse().unwrap();
                let (version, context) = (self.version(), self.context());
                let named = NamedFilesOptions::default();
                match pick_files(&version, &self.options, &self.running, &context, &numbers, level, named) {
                    Ok(plan) => show_plan(&plan),
                    Err(error) => error.to_string(),
                }
            }
            // drop <number>
            "drop" => {
                let (version, context) = (self.version(), self.context());
                let number = FileNumber(case.arguments[0].parse().unwrap());
                match drop_file(&version, &self.options, &self.running, &context, number) {
                    Ok(plan) => plan.map_or("not now".to_owned(), |plan| show_plan(&plan)),
                    Err(error) => error.to_string(),
                }
            }
            // promote <level>
            "promote" => {
                let (version, context) = (self.version(), self.context());
                let level = case.arguments[0].parse().unwrap();
                match promote_level0(&version, &self.options, &self.running, &context, level) {
                    Ok(plan) => plan.map_or("nothing".to_owned(), |plan| show_plan(&plan)),
                    Err(error) => error.to_string(),
                }
            }
            // refit <level or ->
            "refit" => {
                let (version, context) = (self.version(), self.context());
                let level = case.arguments[0].parse().ok();
                match refit_last_level(&version, &self.options, &self.running, &context, level) {
                    Ok(refit) => format!("{refit:?}"),
                    Err(error) => error.to_string(),
                }
            }
            other => panic!("unknown command {other}"),
        }
    }

    fn go_on_manually(&mut self) -> String {
        let mut manual = self.manual.take().expect("a manual compaction");
        let mut text = String::new();
        for _ in 0..50 {
            match manual.next(&self.version(), &self.options, &self.running, &self.context()) {
                ManualPick::Plan(plan) => {
                    text += &format!("{}\n", show_plan(&plan));
                    assert!(self.running.admits(&plan));
                    self.run(&plan);
                    manual.installed();
                }
                ManualPick::Wait => {
                    self.manual = Some(manual);
                    return text + "wait";
                }
                ManualPick::Done => return text + &self.show(),
            }
        }
        text + "endless"
    }
}

fn parse_size(text: &str) -> u64 {
    match text.strip_suffix(['K', 'M']) {
        Some(number) if text.ends_with('K') => number.parse::<u64>().expect("a size") << 10,
        Some(number) => number.parse::<u64>().expect("a size") << 20,
        None => text.parse().expect("a size"),
    }
}

fn show_size(bytes: u64) -> String {
    format!("{:.2}M", bytes as f64 / f64::from(1 << 20))
}

fn parse_file(word: &str, epoch: u64) -> FileMetaData {
    let (number, rest) = word.split_once(':').expect("number:low-high");
    let bounds_len = rest.find(['=', '#', '@', '*', '!']).unwrap_or(rest.len());
    let (bounds, mut flags) = rest.split_at(bounds_len);
    let (low, high) = bounds.split_once('-').expect("low-high");
    let (mut size, mut small, mut large, mut age, mut marked) = (1 << 20, epoch, epoch, 0, false);
    let mut ends_before_high = false;
    while let Some(flag) = flags.chars().next() {
        let len = flags[1..].find(['=', '#', '@', '*', '!']).map_or(flags.len(), |at| at + 1);
        let value = &flags[1..len];
        match flag {
            '=' => size = parse_size(value),
            '#' => {
                let (a, b) = value.split_once("..").expect("small..large");
                (small, large) = (a.parse().unwrap(), b.parse().unwrap());
            }
            '@' => age = value.parse().unwrap(),
            '!' => ends_before_high = true,
            _ => marked = true,
        }
        flags = &flags[len..];
    }
    let key = |user: &str, sequence| {
        InternalKeyBuf::new(user.as_bytes(), SequenceNumber(sequence), ValueType::Value)
    };
    let mut file =
        FileMetaData::new(FileNumber(number.parse().unwrap()), size, key(low, large), key(high, small));
    if ends_before_high {
        file.largest = InternalKeyBuf::new(high.as_bytes(), SequenceNumber::MAX, ValueType::RangeDeletion);
    }
    (file.smallest_seqno, file.largest_seqno) = (SequenceNumber(small), SequenceNumber(large));
    file.epoch_number = epoch;
    file.oldest_ancester_time = age;
    file.file_creation_time = age;
    file.marked_for_compaction = marked;
    file
}

fn show_file(file: &FileMetaData) -> String {
    let (low, high) = (file.smallest.user_key().escape_ascii(), file.largest.user_key().escape_ascii());
    format!("{}:{low}-{high}", file.number)
}

fn show_plan(plan: &CompactionPlan) -> String {
    let bottom = if plan.bottommost { " bottommost" } else { "" };
    let codec = if plan.compression == CompressionKind::None { "" } else { " compressed" };
    format!("{plan:?}{bottom}{codec}")
}

#[test]
fn text_cases() {
    for name in [
        "shape.txt",
        "pick_level0.txt",
        "pick_lower.txt",
        "pick_special.txt",
        "offpeak.txt",
        "manual.txt",
        "named_files.txt",
        "universal.txt",
        "fifo.txt",
        "ingest_behind.txt",
        "often_read.txt",
        "incremental.txt",
        "drop_file.txt",
        "last_level.txt",
    ] {
        let mut tree = Tree::new();
        text_test::run(name, |case| tree.answer(case));
    }
}

/// Keys `number * 100 + 30..number * 100 + 50` and so on, as in RocksDB's cases of incremental compaction.
fn incremental_pick(
    numbers: std::ops::Range<u64>,
    upper: impl Fn(u64) -> Vec<(u64, u64, u64)>,
) -> Vec<usize> {
    let mut tree = Tree::new();
    tree.set(&[
        "style=universal",
        "dynamic=false",
        "levels=5",
        "trigger=4",
        "size_amp=30",
        "incremental=true",
    ]);
    tree.set(&["max_compaction=3200000", "file_size=100000"]);
    let file = |number: u64, low: u64, high: u64, size: u64| {
        Arc::new(parse_file(&format!("{number}:{low:04}-{high:04}={size}"), 7))
    };
    tree.levels[0] = vec![file(1, 150, 200, 100_000)];
    tree.levels[2] = vec![file(2, 10, 80, 100_000)];
    for number in numbers {
        let at = number * 100;
        for (extra, (low, high, size)) in upper(number).into_iter().enumerate() {
            tree.levels[3].push(file(10 * at + extra as u64, low, high, size));
        }
        tree.levels[4].push(file(10 * at + 8, at + 30, at + 50, 100_000));
        tree.levels[4].push(file(10 * at + 9, at + 60, at + 110, 100_000));
    }
    let plan = tree.pick().expect("the size amplification is due");
    let first = plan.inputs[0].files[0].number.0 as usize;
    let levels: Vec<_> = plan.inputs.iter().map(|inputs| inputs.level).collect();
    assert_eq!((levels, plan.output_level), (vec![3, 4], 4));
    [first].into_iter().chain(plan.inputs.iter().map(|inputs| inputs.files.len())).collect()
}

#[test]
fn of_many_windows_the_one_with_the_smallest_fan_out_is_merged() {
    let picked = incremental_pick(11..79, |number| {
        let at = number * 100;
        let mut files = vec![(at, at + 80, 100_000)];
        if number == 66 {
            files.push((at + 90, at + 99, 100_000)); // It costs nothing.
        }
        files
    });
    assert_eq!(picked, [62_000, 6, 11]);
    let picked = incremental_pick(11..70, |number| {
        vec![(number * 100, number * 100 + 80, if number % 10 == 9 { 10_000_000 } else { 100_000 })]
    });
    assert_eq!(picked, [14_000, 6, 13], "a large file");
}

/// What a file holds: (user key, sequence number), in internal-key order.
type Entries = Vec<(u16, u64)>;

/// A tree whose files hold entries, so that it can be seen whether reads stay right.
struct FilledTree {
    tree: Tree,
    entries: BTreeMap<FileNumber, Entries>,
    rng: SmallRng,
    keys: u16,
    sequence: u64,
    epoch: u64,
    manual: Option<(ManualCompaction, Option<CompactionId>)>,
}

const ENTRY_BYTES: u64 = 100;

impl FilledTree {
    fn random(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut tree = Tree::new();
        let file = ENTRY_BYTES * rng.random_range(2..20);
        let style = [CompactionStyle::Level, CompactionStyle::Universal, CompactionStyle::Fifo]
            [[0, 0, 0, 1, 1, 1, 1, 2][rng.random_range(0..8)]];
        let least_levels = if style == CompactionStyle::Level { 2 } else { 1 };
        tree.options = CompactionOptions {
            style,
            universal: UniversalOptions {
                size_ratio: [0, 1, 50][rng.random_range(0..3)],
                min_merge_width: rng.random_range(1..4),
                max_merge_width: [3, u32::MAX][rng.random_range(0..2)],
                max_size_amplification_percent: [25, 200, 1000][rng.random_range(0..3)],
                max_read_amp: [-1, 0, 6][rng.random_range(0..3)],
                stop_style: [StopStyle::SimilarSize, StopStyle::TotalSize][rng.random_range(0..2)],
                allow_trivial_move: rng.random(),
                incremental: rng.random(),
                ..UniversalOptions::default()
            },
            fifo: FifoOptions {
                max_table_files_size: file * rng.random_range(2..20),
                allow_compaction: rng.random(),
            },
            write_buffer_size: file as usize,
            level0_stop_writes_trigger: rng.random_range(4..12),
            num_levels: rng.random_range(least_levels..6),
            level0_file_num_compaction_trigger: rng.random_range(1..5),
            max_bytes_for_level_base: file * rng.random_range(1..6),
            max_bytes_for_level_multiplier: f64::from(rng.random_range(2..6)),
            level_compaction_dynamic_level_bytes: style == CompactionStyle::Level && rng.random(),
            target_file_size_base: file,
            target_file_size_multiplier: rng.random_range(1..3),
            max_compaction_bytes: [0, file * 2, file * 5][rng.random_range(0..3)],
            compaction_pri: CompactionPriority::from_byte(rng.random_range(0..5)).unwrap(),
            allow_trivial_move: rng.random(),
            ttl: [0, 100][rng.random_range(0..2)],
            periodic_compaction_seconds: [0, 200][rng.random_range(0..2)],
            compression: CompressionKind::None,
            ..CompactionOptions::default()
        };
        tree.options.allow_ingest_behind =
            style != CompactionStyle::Fifo && tree.options.num_levels > 2 && rng.random_ratio(1, 4);
        tree.levels = vec![Vec::new(); tree.options.num_levels];
        tree.now = 1000;
        let keys = [5, 40, 400][rng.random_range(0..3)];
        Self { tree, entries: BTreeMap::new(), rng, keys, sequence: 1, epoch: 1, manual: None }
    }

    fn file(&mut self, entries: Entries, epoch: u64, zeroed: bool) -> FileMetaData {
        let key = |(user, sequence): (u16, u64)| {
            InternalKeyBuf::new(&user.to_be_bytes(), SequenceNumber(sequence), ValueType::Value)
        };
        self.tree.next_number += 1;
        let number = FileNumber(self.tree.next_number - 1);
        let size = ENTRY_BYTES * entries.len() as u64;
        let mut file = FileMetaData::new(number, size, key(entries[0]), key(*entries.last().unwrap()));
        if !zeroed {
            file.smallest_seqno = SequenceNumber(entries.iter().map(|entry| entry.1).min().unwrap());
            file.largest_seqno = SequenceNumber(entries.iter().map(|entry| entry.1).max().unwrap());
        }
        file.epoch_number = epoch;
        file.file_creation_time = self.tree.now;
        file.marked_for_compaction = self.rng.random_ratio(1, 20);
        if self.rng.random_ratio(1, 20) {
            self.tree.often_read.push(number);
        }
        self.entries.insert(number, entries);
        file
    }

    fn flush(&mut self) {
        let narrow = self.rng.random_bool(0.3);
        let low = if narrow { self.rng.random_range(0..self.keys) } else { 0 };
        let high = if narrow { (low + self.keys / 8 + 1).min(self.keys) } else { self.keys };
        let mut entries = Entries::new();
        for _ in 0..self.rng.random_range(1..30) {
            entries.push((self.rng.random_range(low..high), self.sequence));
            self.sequence += 1;
        }
        entries.sort_by_key(|&(user, sequence)| (user, std::cmp::Reverse(sequence)));
        self.epoch += 1;
        let mut file = self.file(entries, self.epoch, false);
        file.oldest_ancester_time = self.tree.now;
        self.tree.levels[0].insert(0, Arc::new(file));
    }

    fn finish(&mut self, plan: &CompactionPlan) {
        if plan.kind != PlanKind::Rewrite {
            self.tree.install(plan, Vec::new());
            return;
        }
        let mut merged: Entries =
            plan.input_files().flat_map(|(_, file)| self.entries[&file.number].clone()).collect();
        merged.sort_by_key(|&(user, sequence)| (user, std::cmp::Reverse(sequence)));
        if self.rng.random() {
            merged.dedup_by_key(|entry| entry.0); // No snapshots: the newest of each key survives.
        }
        let epoch = plan.input_files().map(|(_, file)| file.epoch_number).min().unwrap();
        let oldest = plan.input_files().map(|(_, file)| file.oldest_ancester_time).min().unwrap();
        let mut outputs = Vec::new();
        let mut rest = merged.as_slice();
        while !rest.is_empty() {
            // RocksDB of old cut within a user key.
            let target = (plan.target_file_size / ENTRY_BYTES).max(1) as usize;
            let len = if plan.output_level == 0 {
                rest.len()
            } else {
                self.rng.random_range(1..=target).min(rest.len())
            };
            let (head, tail) = rest.split_at(len);
            let mut file = self.file(head.to_vec(), epoch, plan.bottommost);
            file.oldest_ancester_time = oldest;
            file.marked_for_compaction = false;
            outputs.push(file);
            rest = tail;
        }
        self.tree.install(plan, outputs);
    }

    /// The plan may run, and what it says about the rest of the tree is true.
    fn check_plan(&self, plan: &CompactionPlan) {
        assert!(self.tree.running.admits(plan), "{plan:?}");
        let last = self.tree.options.max_output_level();
        assert!(
            plan.output_level <= last && plan.inputs.iter().all(|inputs| inputs.level <= plan.output_level)
        );
        let mut below = crate::iterator::BelowLevels::new(&plan.below);
        let mut inputs: Entries =
            plan.input_files().flat_map(|(_, file)| self.entries[&file.number].clone()).collect();
        inputs.sort_unstable();
        for (user, sequence) in inputs {
            let is_older = |file: &Arc<FileMetaData>| {
                !plan.contains(file.number)
                    && self.entries[&file.number].iter().any(|entry| entry.0 == user && entry.1 < sequence)
            };
            let older = self.tree.levels.iter().flatten().find(|file| is_older(file));
            let Some(older) = older else { continue };
            assert!(plan.kind != PlanKind::Drop, "{plan:?}: {user}@{sequence} has elders in {older:?}");
            assert!(!plan.bottommost, "{plan:?} bottommost: {user}@{sequence} has elders in {older:?}");
            if plan.output_level > 0 {
                let may = below.may_contain(&UserComparator::Bytewise, &user.to_be_bytes());
                assert!(may, "{plan:?}: {user}@{sequence} has elders in {older:?}");
            }
        }
    }

    fn check_tree(&self) {
        let order = InternalKeyComparator::default();
        for files in &self.tree.levels[1..] {
            for pair in files.windows(2) {
                assert!(
                    order.compare(pair[0].largest.as_key(), pair[1].smallest.as_key()).is_lt(),
                    "{}",
                    self.tree.show()
                );
            }
        }
        // A lookup goes through the files in this order and stops at the first hit.
        let mut newest_left = vec![u64::MAX; usize::from(self.keys)];
        for file in self.tree.levels.iter().flatten() {
            for &(user, sequence) in &self.entries[&file.number] {
                let left = &mut newest_left[usize::from(user)];
                assert!(sequence < *left, "{user}@{sequence} lies below {user}@{left}\n{}", self.tree.show());
                *left = sequence;
            }
        }
    }

    fn start(&mut self, plan: CompactionPlan) -> CompactionId {
        if std::env::var_os("TRACE").is_some() {
            println!("{}start {plan:?}", self.tree.show());
        }
        self.check_plan(&plan);
        self.tree.start(plan);
        self.tree.started.last().unwrap().0
    }

    fn finish_one(&mut self) {
        if self.tree.started.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.tree.started.len());
        let (id, plan) = self.tree.started.remove(at);
        let fails = self.rng.random_ratio(1, 10);
        if std::env::var_os("TRACE").is_some() {
            println!("{} {plan:?}", if fails { "fail" } else { "finish" });
        }
        if !fails {
            self.finish(&plan);
        }
        self.tree.running.remove(id);
        if let Some((manual, Some(waiting))) = &mut self.manual
            && *waiting == id
        {
            if !fails {
                manual.installed();
            }
            self.manual.as_mut().unwrap().1 = None;
        }
    }

    fn go_on_manually(&mut self) {
        if self.manual.is_none() {
            let policy = BottommostPolicy::from_byte(self.rng.random_range(0..4)).unwrap();
            let (a, b) = (self.rng.random_range(0..self.keys), self.rng.random_range(0..self.keys));
            let begin = self.rng.random::<bool>().then(|| a.min(b).to_be_bytes());
            let end = self.rng.random::<bool>().then(|| a.max(b).to_be_bytes());
            let next = FileNumber(self.tree.next_number);
            let manual = ManualCompaction::new(
                begin.as_ref().map(|key| &key[..]),
                end.as_ref().map(|key| &key[..]),
                policy,
                next,
            );
            self.manual = Some((manual.exclusive(self.rng.random_ratio(1, 4)), None));
        }
        let Some((mut manual, waiting)) = self.manual.take() else { return };
        if waiting.is_some() {
            self.manual = Some((manual, waiting));
            return;
        }
        let (version, context) = (self.tree.version(), self.tree.context());
        match manual.next(&version, &self.tree.options, &self.tree.running, &context) {
            ManualPick::Plan(plan) => {
                let id = self.start(*plan);
                self.manual = Some((manual, Some(id)));
            }
            ManualPick::Wait => self.manual = Some((manual, None)),
            ManualPick::Done => {}
        }
    }

    fn name_files(&mut self) {
        let all: Vec<FileNumber> = self.tree.levels.iter().flatten().map(|file| file.number).collect();
        if all.is_empty() {
            return;
        }
        let numbers: Vec<FileNumber> =
            (0..self.rng.random_range(1..4)).map(|_| all[self.rng.random_range(0..all.len())]).collect();
        let level = self.rng.random_range(0..self.tree.options.num_levels);
        let (version, context) = (self.tree.version(), self.tree.context());
        let named =
            NamedFilesOptions { allow_trivial_move: self.rng.random(), ..NamedFilesOptions::default() };
        let (options, running) = (&self.tree.options, &self.tree.running);
        if let Ok(plan) = pick_files(&version, options, running, &context, &numbers, level, named) {
            self.start(plan);
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..6 => self.flush(),
            6..12 => {
                let kind = self.rng.random_range(0..3);
                let [any, last, rest] = self.tree.pick_for_threads_of_each_kind();
                if let Some(plan) = [any, last, rest].into_iter().nth(kind).flatten() {
                    self.start(plan);
                }
            }
            12..17 => self.finish_one(),
            17 => self.go_on_manually(),
            18 => self.name_files(),
            _ => {
                self.tree.now += self.rng.random_range(0..150);
                self.tree.threshold = SequenceNumber(self.rng.random_range(0..self.sequence));
            }
        }
    }

    /// With nothing new coming in, the work ends.
    fn settle(&mut self) {
        while !self.tree.started.is_empty() {
            self.finish_one();
        }
        let limit = 50 + 20 * self.tree.version().num_files();
        for _ in 0..limit {
            let Some(plan) = self.tree.pick() else { return };
            let id = self.start(plan);
            let (_, plan) = self.tree.started.pop().unwrap();
            self.finish(&plan);
            self.tree.running.remove(id);
            self.check_tree();
        }
        let plan = self.tree.pick();
        panic!(
            "no end after {limit} compactions, next {plan:?}\n{}\n{:?}",
            self.tree.show(),
            self.tree.options
        );
    }

    /// A manual compaction of everything ends as well.
    fn settle_manually(&mut self) {
        let policy = BottommostPolicy::from_byte(self.rng.random_range(0..4)).unwrap();
        let mut manual = ManualCompaction::new(None, None, policy, FileNumber(self.tree.next_number));
        for _ in 0..50 + 20 * self.tree.version().num_files() {
            let (version, context) = (self.tree.version(), self.tree.context());
            match manual.next(&version, &self.tree.options, &self.tree.running, &context) {
                ManualPick::Plan(plan) => {
                    self.check_plan(&plan);
                    self.finish(&plan);
                    manual.installed();
                    self.check_tree();
                }
                ManualPick::Wait => panic!("nothing runs that it could wait for"),
                ManualPick::Done => return,
            }
        }
        panic!("no end of {manual:?}\n{}", self.tree.show());
    }
}

#[test]
fn any_sequence_of_compactions_keeps_reads_right_and_ends() {
    let rounds = std::env::var("ROUNDS").map_or(300, |rounds| rounds.parse().expect("a number"));
    let first = std::env::var("SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for seed in first..first + rounds {
        println!("replay: SEED={seed} ROUNDS=1 cargo test -p ironstone-compaction any_sequence");
        let mut tree = FilledTree::random(seed);
        for _ in 0..120 {
            tree.step();
            tree.check_tree();
        }
        tree.settle();
        tree.settle_manually();
        tree.settle();
    }
}
