//! Reads the command line the way gflags does.
//!
//! ```text
//! --name=value  -name=value  --name value     any flag; dashes in the name stand for underscores
//! --name  --noname                            booleans
//! --flagfile=PATH                             a file with one flag a line; '#' starts a comment line
//! --undefok=a,b                               do not complain about these names
//! --                                          no flags after this
//! ```

use super::flag::{FlagSpec, Role};
use super::flags::Flags;
use ironstone_vfs::FileSystem;
use std::collections::VecDeque;
use std::path::Path;

/// What the command line asks for.
pub enum Request {
    /// A run.
    Run(Box<Flags>),
    /// The list of flags.
    Help,
    /// The version.
    Version,
}

/// Why there is no run: what to print.
pub type Refusal = String;

/// Reads `arguments`, the program's name not among them. `fs` is where flag files are.
pub fn parse(arguments: impl IntoIterator<Item = String>, fs: &dyn FileSystem) -> Result<Request, Refusal> {
    let mut reader = Reader { flags: Box::default(), unknown: Vec::new(), undefok: Vec::new(), fs };
    let mut arguments: VecDeque<String> = arguments.into_iter().collect();
    while let Some(argument) = arguments.pop_front() {
        if argument == "--" {
            break;
        }
        let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            return Err(format!("ERROR: unexpected argument '{argument}': flags start with --"));
        };
        match flag {
            "help" | "helpfull" | "helpshort" | "h" => return Ok(Request::Help),
            "version" => return Ok(Request::Version),
            _ => reader.take(flag, &mut arguments)?,
        }
    }
    reader.unknown.retain(|name| !reader.undefok.contains(name));
    if let Some(name) = reader.unknown.first() {
        return Err(format!("ERROR: unknown command line flag '{name}'"));
    }
    let mut flags = reader.flags;
    flags.use_existing_db |= flags.readonly;
    if flags.compression_ratio > 1.0 {
        flags.compression_ratio /= 100.0; // Old command lines say 50 where new ones say 0.5.
    }
    if flags.stats_interval_seconds > 0 {
        flags.stats_interval = 1000; // How often the clock is looked at.
    }
    check(&flags)?;
    Ok(Request::Run(flags))
}

struct Reader<'a> {
    flags: Box<Flags>,
    unknown: Vec<String>,
    undefok: Vec<String>,
    fs: &'a dyn FileSystem,
}

impl Reader<'_> {
    /// Takes one flag; its value may be the next of `rest`.
    fn take(&mut self, flag: &str, rest: &mut VecDeque<String>) -> Result<(), Refusal> {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.replace('-', "_"), Some(value.to_owned())),
            None => (flag.replace('-', "_"), None),
        };
        match name.as_str() {
            "flagfile" => return self.read_file(&given(&name, value, rest)?),
            "undefok" => {
                self.undefok.extend(given(&name, value, rest)?.split(',').map(str::to_owned));
                return Ok(());
            }
            _ => {}
        }
        if let Some(spec) = find(&name) {
            let value = match value {
                Some(value) => value,
                None if spec.kind.stands_alone() => "true".to_owned(),
                None => given(&name, None, rest)?,
            };
            return self.set(spec, &value);
        }
        let negated = name.strip_prefix("no").and_then(find).filter(|spec| spec.kind.stands_alone());
        match negated {
            Some(spec) if value.is_none() => self.set(spec, "false"),
            _ => {
                self.unknown.push(name);
                Ok(())
            }
        }
    }

    fn set(&mut self, spec: &'static FlagSpec<Flags>, text: &str) -> Result<(), Refusal> {
        let illegal =
            || format!("ERROR: illegal value '{text}' specified for {} flag '{}'", spec.kind, spec.name);
        let value = match spec.role {
            Role::Bench { set, .. } => return set(&mut self.flags, text).then_some(()).ok_or_else(illegal),
            _ => spec.kind.normalize(text).ok_or_else(illegal)?,
        };
        match spec.role {
            Role::Refused(feature) if Some(&value) != spec.kind.normalize(spec.default).as_ref() => {
                return Err(format!("ERROR: --{}={text} is not supported: {feature}", spec.name));
            }
            Role::Ignored(why) => {
                let note = format!("--{} is ignored: {why}", spec.name);
                if !self.flags.notes.contains(&note) {
                    self.flags.notes.push(note);
                }
            }
            _ => {}
        }
        self.flags.others.insert(spec.name, value);
        Ok(())
    }

    fn read_file(&mut self, path: &str) -> Result<(), Refusal> {
        let bytes = self.fs.read_all(Path::new(path)).map_err(|error| format!("ERROR: flagfile: {error}"))?;
        for line in String::from_utf8_lossy(&bytes).lines().map(str::trim) {
            // Flag files do not name flag files: a circle of them would have no end.
            if let Some(flag) = line.strip_prefix("--").or_else(|| line.strip_prefix('-'))
                && !flag.starts_with("flagfile")
            {
                self.take(flag, &mut VecDeque::new())?;
            }
        }
        Ok(())
    }
}

fn find(name: &str) -> Option<&'static FlagSpec<Flags>> {
    Flags::table().iter().find(|spec| spec.name == name)
}

fn given(name: &str, value: Option<String>, rest: &mut VecDeque<String>) -> Result<String, Refusal> {
    value.or_else(|| rest.pop_front()).ok_or_else(|| format!("ERROR: flag '{name}' is missing its argument"))
}

/// Refuses values that make no sense, by themselves or together.
fn check(flags: &Flags) -> Result<(), Refusal> {
    let rules: &[(bool, &str)] = &[
        (flags.num >= 0, "--num must not be negative"),
        (flags.threads > 0, "--threads must be above 0"),
        (flags.key_size > 0, "--key_size must be above 0"),
        (flags.value_size >= 0, "--value_size must not be negative"),
        (flags.batch_size > 0, "--batch_size must be above 0"),
        (flags.num_column_families > 0, "--num_column_families must be above 0"),
        (flags.ops_between_duration_checks > 0, "--ops_between_duration_checks must be above 0"),
        (flags.compression_ratio > 0.0, "--compression_ratio must be above 0"),
        ((0..=100).contains(&flags.readwritepercent), "--readwritepercent must be within 0 and 100"),
        (
            (0..=100).contains(&flags.same_value_percentage),
            "--same_value_percentage must be within 0 and 100",
        ),
        (flags.value_size_min >= 0, "--value_size_min must not be negative"),
        (flags.value_size_min <= flags.value_size_max, "--value_size_min must not be above --value_size_max"),
        (flags.prefix_size >= 0, "--prefix_size must not be negative"),
        (flags.prefix_size <= flags.key_size, "--prefix_size must not be above --key_size"),
        (flags.keys_per_prefix >= 0, "--keys_per_prefix must not be negative"),
        (flags.keys_per_prefix == 0 || flags.prefix_size > 0, "--keys_per_prefix needs --prefix_size"),
        (flags.keys_per_prefix <= flags.num.max(1), "--keys_per_prefix must not be above --num"),
        (
            !flags.seek_missing_prefix || flags.prefix_size > 8,
            "--seek_missing_prefix needs --prefix_size above 8",
        ),
        (flags.multiread_stride >= 0, "--multiread_stride must not be negative"),
        (flags.overwrite_window_size > 0, "--overwrite_window_size must be above 0"),
        (
            flags.compaction_style == 0,
            "--compaction_style is not supported: compaction styles other than levelled",
        ),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(format!("ERROR: {rule}")),
        None => Ok(()),
    }
}

/// The text of `--help`.
pub fn help() -> String {
    let mut text = String::from("db_bench: measures a database the way RocksDB's db_bench does\n\n");
    let defaults = Flags::default();
    for spec in Flags::table() {
        let (what, default) = match spec.role {
            Role::Bench { get, .. } => (spec.help.to_owned(), get(&defaults)),
            Role::Database(option) | Role::ColumnFamily(option) | Role::Table(option) => {
                (format!("{}: {option}", spec.help), spec.default.to_owned())
            }
            Role::Ignored(why) => (format!("ignored: {why}"), spec.default.to_owned()),
            Role::Refused(feature) => {
                (format!("only the default, for want of {feature}"), spec.default.to_owned())
            }
        };
        text += &format!("    -{} ({what}) type: {} default: {default:?}\n", spec.name, spec.kind);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_vfs::mem::MemFileSystem;

    fn request(arguments: &[&str]) -> Result<Request, Refusal> {
        parse(arguments.iter().map(|argument| argument.to_string()), &MemFileSystem::volatile())
    }
    fn flags(arguments: &[&str]) -> Flags {
        match request(arguments) {
            Ok(Request::Run(flags)) => *flags,
            Ok(_) => panic!("no run"),
            Err(refusal) => panic!("{refusal}"),
        }
    }
    fn refusal(arguments: &[&str]) -> String {
        request(arguments).err().expect("it is refused")
    }

    #[test]
    fn every_form_of_a_flag_is_read() {
        for form in [&["--num=7"][..], &["-num=7"], &["--num", "7"], &["-num", "0x7"]] {
            assert_eq!(flags(form).num, 7, "{form:?}");
        }
        assert!(flags(&["--histogram"]).histogram && flags(&["--histogram=yes"]).histogram);
        assert!(
            !flags(&["--noverify_checksum"]).verify_checksum
                && !flags(&["--verify-checksum=0"]).verify_checksum
        );
        assert_eq!(flags(&["--", "--num=x"]).num, 1_000_000);
    }

    #[test]
    fn unknown_flags_and_bad_values_are_named() {
        assert_eq!(refusal(&["--nonsense=1"]), "ERROR: unknown command line flag 'nonsense'");
        assert_eq!(refusal(&["--num=many"]), "ERROR: illegal value 'many' specified for int64 flag 'num'");
        assert_eq!(refusal(&["--num"]), "ERROR: flag 'num' is missing its argument");
        assert_eq!(
            refusal(&["--use_trie_index"]),
            "ERROR: --use_trie_index=true is not supported: user-defined indexes"
        );
        assert!(request(&["--nonsense=1", "--undefok=nonsense"]).is_ok());
        assert!(request(&["--use_trie_index=0"]).is_ok());
    }

    #[test]
    fn retired_flags_are_reported_once() {
        let flags =
            flags(&["--disable_data_sync=1", "--nodisable_data_sync", "--source_compaction_factor=10000000"]);
        let expected = [
            "--disable_data_sync is ignored: RocksDB retired it",
            "--source_compaction_factor is ignored: RocksDB retired it",
        ];
        assert_eq!(flags.notes, expected);
    }

    #[test]
    fn a_ratio_above_one_is_in_percent() {
        assert_eq!(flags(&["--compression_ratio=50"]).compression_ratio, 0.5);
        assert_eq!(flags(&["--compression_ratio=1"]).compression_ratio, 1.0);
    }

    #[test]
    fn a_flag_file_is_read() {
        let fs = MemFileSystem::volatile();
        fs.write_all_synced(Path::new("/flags"), b"# comment\n--num=5\n--sync\n").unwrap();
        let Ok(Request::Run(flags)) = parse(["--flagfile=/flags".to_owned()], &fs) else { panic!("no run") };
        assert_eq!((flags.num, flags.sync), (5, true));
    }
}
