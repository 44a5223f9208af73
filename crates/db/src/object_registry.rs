//! Objects that only code can make, by the names that they have in option texts.
//!
//! OPTIONS files and option strings name comparators, merge operators and the like. Those that are built in are found by
//! their names; others are found here once they are registered, for the whole process. (RocksDB: `ObjectRegistry`.)
//!
//! ```
//! use ironstone::merge_operators::{MergeOperator, associative};
//! use ironstone::{Options, object_registry};
//! use std::sync::Arc;
//!
//! object_registry::register("counts", |_id: &str| Ok(associative("counts", |_, existing, operand| {
//!     Some(existing.unwrap_or_default().iter().chain(operand).copied().collect())
//! })));
//! let mut options = Options::default();
//! options.cf.set("merge_operator", "counts")?;
//! assert_eq!(options.cf.merge_operator.unwrap().name(), "counts");
//! # Ok::<_, ironstone::Error>(())
//! ```
//!
//! An object may have options of its own (RocksDB: `Customizable`): `{id=name;option=value;...}`. It is made of them
//! ([`register_with_options`]), and says them in its `parameters()`, so that the OPTIONS file has them, too:
//!
//! ```
//! use ironstone::object_registry::{self, ObjectOptions};
//! use ironstone::{CompactionFilter, FilterDecision, Options};
//! use std::sync::Arc;
//!
//! struct Longer(usize);
//! impl CompactionFilter for Longer {
//!     fn name(&self) -> &str {
//!         "longer"
//!     }
//!     fn parameters(&self) -> Option<String> {
//!         Some(object_registry::print_options([("than", self.0.to_string())]))
//!     }
//!     fn filter(&self, _level: usize, _key: &[u8], value: &[u8]) -> FilterDecision {
//!         if value.len() > self.0 { FilterDecision::Remove } else { FilterDecision::Keep }
//!     }
//! }
//!
//! object_registry::register_with_options("longer", |_id: &str, options: &mut ObjectOptions| {
//!     Ok(Arc::new(Longer(options.take_parsed("than", 100)?)) as Arc<dyn CompactionFilter>)
//! });
//! let mut options = Options::default();
//! options.cf.set("compaction_filter", "{id=longer;than=7}")?;
//! assert_eq!(options.cf.get("compaction_filter").unwrap(), "{id=longer;than=7;}");
//! assert!(options.cf.set("compaction_filter", "{id=longer;wide=7}").is_err());
//! # Ok::<_, ironstone::Error>(())
//! ```

use crate::listener::EventListener;
use crate::options::{OptionError, escape, unescape};
use crate::wal_filter::WalFilter;
use ironstone_base::merge::MergeOperator;
use ironstone_base::sync::{Arc, OnceLock, RwLock};
use ironstone_base::{Comparator, Error, Result, SliceTransform};
use ironstone_compaction::{CompactionFilter, CompactionFilterFactory, SstPartitionerFactory};
use ironstone_sst::{FileChecksumGenFactory, FlushBlockPolicyFactory, TablePropertiesCollectorFactory};
use ironstone_vfs::{Clock, Env, FileSystem};
use std::any::{Any, TypeId};
use std::str::FromStr;

/// What can be registered: an [`Env`]; `Arc<dyn …>` of a [`FileSystem`], [`Clock`], [`EventListener`], [`Comparator`], [`SliceTransform`] (prefix extractor), [`MergeOperator`],
/// [`CompactionFilter`], [`CompactionFilterFactory`], [`SstPartitionerFactory`], [`FileChecksumGenFactory`],
/// [`TablePropertiesCollectorFactory`], [`FlushBlockPolicyFactory`] or [`WalFilter`].
pub trait Registered: private::Sealed + Sized + Send + Sync + 'static {}

mod private {
    pub trait Sealed {}
}

macro_rules! registered {
    ($($of:ident),*) => { $(
        impl private::Sealed for Arc<dyn $of> {}
        impl Registered for Arc<dyn $of> {}
    )* };
}
impl private::Sealed for Env {}
impl Registered for Env {}
registered!(
    FileSystem,
    Clock,
    EventListener,
    Comparator,
    SliceTransform,
    MergeOperator,
    CompactionFilter,
    CompactionFilterFactory,
    SstPartitionerFactory,
    FileChecksumGenFactory,
    TablePropertiesCollectorFactory,
    FlushBlockPolicyFactory,
    WalFilter
);

/// Makes an object of the whole name that it was asked for, and of the options that it takes.
type Make<T> = Box<dyn Fn(&str, &mut ObjectOptions) -> Result<T> + Send + Sync>;

/// The options that a text has for an object. What nobody takes of them is an error.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectOptions(Vec<(String, String)>);

impl ObjectOptions {
    pub(crate) fn new(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }
    /// The value of `name`, if the text has one, without the braces around it, and unescaped. The text of an object
    /// within this one is such a value, too.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        let (_, value) = self.0.remove(at);
        let within = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        Some(unescape(within.unwrap_or(&value)))
    }
    /// The same as a `T`; `default` without the option. `InvalidArgument` that names the option if its value is none.
    pub fn take_parsed<T: FromStr>(&mut self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.take(name) else { return Ok(default) };
        text.parse().map_err(|_| Error::invalid_argument(format!("{name}={text}: no such value")))
    }
    /// An error if some are left.
    pub(crate) fn check_empty(&self, id: &str) -> std::result::Result<(), OptionError> {
        match self.0.first() {
            Some((name, _)) => Err(format!("{id} has no option {name}").into()),
            None => Ok(()),
        }
    }
}

/// Options of an object as text, for `parameters()`: what [`ObjectOptions`] finds again. Braces within values have to match.
pub fn print_options<N: AsRef<str>, V: AsRef<str>>(options: impl IntoIterator<Item = (N, V)>) -> String {
    let print = |(name, value): (N, V)| {
        let value = escape(value.as_ref());
        let is_plain = !value.contains([';', '{', '}']) && value.trim() == value;
        let value = if is_plain { value } else { format!("{{{value}}}") };
        format!("{}={value}", name.as_ref())
    };
    options.into_iter().map(print).collect::<Vec<_>>().join(";")
}

struct Entry {
    name: String,
    is_prefix: bool,
    kind: TypeId,
    /// A `Make` of that kind.
    make: Arc<dyn Any + Send + Sync>,
}

fn entries() -> &'static RwLock<Vec<Entry>> {
    static ENTRIES: OnceLock<RwLock<Vec<Entry>>> = OnceLock::new();
    ENTRIES.get_or_init(RwLock::default)
}

fn add<T: Registered>(name: String, is_prefix: bool, make: Make<T>) {
    let kind = TypeId::of::<T>();
    let mut entries = entries().write();
    entries.retain(|entry| (entry.kind, entry.is_prefix, &entry.name) != (kind, is_prefix, &name));
    entries.push(Entry { name, is_prefix, kind, make: Arc::new(make) });
}

/// Objects of that name are made by `make`, from now on; one that was registered under it goes. Names of built-in objects
/// stay theirs. The object's own `name()` is what databases record, and should be the same.
pub fn register<T: Registered>(
    name: impl Into<String>,
    make: impl Fn(&str) -> Result<T> + Send + Sync + 'static,
) {
    add(name.into(), false, Box::new(move |id, _| make(id)));
}

/// The same for objects that have options of their own: `make` takes those that it knows. A text with others is refused.
pub fn register_with_options<T: Registered>(
    name: impl Into<String>,
    make: impl Fn(&str, &mut ObjectOptions) -> Result<T> + Send + Sync + 'static,
) {
    add(name.into(), false, Box::new(make));
}

/// Objects whose names begin with `prefix` are made by `make`, which is told the whole name. A whole name that is registered
/// goes before, and a longer prefix.
pub fn register_prefix<T: Registered>(
    prefix: impl Into<String>,
    make: impl Fn(&str) -> Result<T> + Send + Sync + 'static,
) {
    add(prefix.into(), true, Box::new(move |id, _| make(id)));
}

/// The object of that name with these options, if one is registered.
pub(crate) fn make<T: Registered>(
    id: &str,
    options: Vec<(String, String)>,
) -> std::result::Result<Option<T>, OptionError> {
    let found = {
        let entries = entries().read();
        let fits = |entry: &&Entry| {
            entry.kind == TypeId::of::<T>()
                && if entry.is_prefix { id.starts_with(&entry.name) } else { id == entry.name }
        };
        let best = entries.iter().filter(fits).max_by_key(|entry| (!entry.is_prefix, entry.name.len()));
        best.map(|entry| Arc::clone(&entry.make))
    };
    let Some(make) = found else { return Ok(None) };
    let make = make.downcast_ref::<Make<T>>().expect("entries are of their kind");
    let mut options = ObjectOptions::new(options);
    let object = make(id, &mut options).map_err(|error| format!("{id}: {error}"))?;
    options.check_empty(id)?;
    Ok(Some(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::options::{LoadOptions, OptionsFile};

    struct Parity(&'static str);
    impl SliceTransform for Parity {
        fn name(&self) -> &str {
            self.0
        }
        fn transform<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
            key.get(..1)
        }
    }

    fn extractor(text: &str) -> std::result::Result<String, String> {
        let mut options = Options::default();
        options.cf.set("prefix_extractor", text).map_err(|error| error.to_string())?;
        Ok(options.cf.prefix_extractor.expect("it was set").name().to_owned())
    }

    #[test]
    fn whole_names_go_before_longer_prefixes_before_shorter_ones() {
        let parity = |name| move |_: &str| Ok(Arc::new(Parity(name)) as Arc<dyn SliceTransform>);
        assert!(extractor("parity.2").unwrap_err().contains("not a built-in prefix extractor"));
        register_prefix("parity.", parity("short"));
        assert_eq!(extractor("parity.2").unwrap(), "short");
        register_prefix("parity.2", parity("long"));
        assert_eq!(extractor("parity.2").unwrap(), "long");
        register("parity.2", parity("whole"));
        assert_eq!(extractor("parity.2").unwrap(), "whole");
        register("parity.2", parity("another"));
        assert_eq!(extractor("parity.2").unwrap(), "another");
        assert_eq!(extractor("parity.3").unwrap(), "short");
        register("rocksdb.FixedPrefix.8", parity("not this one"));
        assert_eq!(extractor("rocksdb.FixedPrefix.8").unwrap(), "rocksdb.FixedPrefix.8");
    }

    struct Heard(&'static str);
    impl EventListener for Heard {
        fn name(&self) -> &str {
            self.0
        }
    }

    #[test]
    fn listeners_are_found_by_name_and_written_by_it() {
        let heard = |name| move |_: &str| Ok(Arc::new(Heard(name)) as Arc<dyn EventListener>);
        register("ear", heard("ear"));
        register("left:ear", heard("left:ear"));
        let mut options = Options::default();
        let names = |options: &Options| {
            let names = options.db.listeners.iter().map(|listener| listener.name().to_owned());
            names.collect::<Vec<_>>()
        };
        for (text, expected) in [
            ("ear", vec!["ear"]),
            ("{ear:{id=ear;}:left\\:ear}", vec!["ear", "ear", "left:ear"]),
            ("nobody:ear", vec!["ear"]),
            ("", vec![]),
        ] {
            options.db.set("listeners", text).unwrap();
            assert_eq!(names(&options), expected, "{text}");
        }
        options.db.listeners = vec![Arc::new(Heard("left:ear")), Arc::new(Heard("")), Arc::new(Heard("ear"))];
        let text = options.db.get("listeners").unwrap();
        assert_eq!(text, "{left\\:ear:ear}");
        let whole = format!("{}", options.db);
        assert!(whole.contains("listeners={left"), "{whole}");
        let mut again = Options::default();
        again.db.set("listeners", &text).unwrap();
        assert_eq!(names(&again), ["left:ear", "ear"]);
    }

    #[test]
    fn environments_are_found_by_name() {
        let is_in_memory = |env: &Env| env.fs.exists(std::path::Path::new("/proc")).is_ok_and(|there| !there);
        register("elsewhere", |_: &str| Ok(Env::in_memory()));
        register("files", |_: &str| Ok(Env::in_memory().fs));
        register("time", |_: &str| Ok(Arc::new(ironstone_vfs::ManualClock::new(7)) as Arc<dyn Clock>));
        let mut options = Options::default();
        for (text, in_memory) in [
            ("elsewhere", true),
            ("default", false),
            ("MockEnv", true),
            ("{id=DefaultEnv}", false),
            ("{id=CompositeEnv;file_system=files;clock={id=time}}", true),
        ] {
            options.db.set("env", text).unwrap();
            assert_eq!(is_in_memory(&options.db.env), in_memory, "{text}");
        }
        assert_eq!(options.db.env.clock.now_micros(), 7);
        for (text, says) in [
            ("nowhere", "env nowhere"),
            ("{id=CompositeEnv;file_system=nothing}", "file_system nothing"),
            ("{id=CompositeEnv;colour=red}", "no option colour"),
            ("{id=elsewhere;x=1}", "elsewhere has no option x"),
            ("{id=DefaultEnv;x=1}", "DefaultEnv has no option x"),
            ("{id=CompositeEnv;file_system={id=files;x=1}}", "files has no option x"),
        ] {
            let error = options.db.set("env", text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(!options.db.to_string().contains("env="), "it is never written");
    }

    /// Joins operands with a word, of which it has a few.
    struct Join {
        word: String,
        count: usize,
    }
    impl MergeOperator for Join {
        fn name(&self) -> &str {
            "join:words"
        }
        fn parameters(&self) -> Option<String> {
            Some(print_options([("word", &self.word), ("count", &self.count.to_string())]))
        }
        fn full_merge(&self, _: &[u8], _: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
            Some(operands.join(self.word.repeat(self.count).as_bytes()))
        }
    }

    #[test]
    fn objects_are_made_of_their_options_and_say_them() {
        register_with_options("join:words", |_: &str, options: &mut ObjectOptions| {
            let word = options.take("word").unwrap_or_else(|| "-".to_owned());
            Ok(Arc::new(Join { word, count: options.take_parsed("count", 1)? }) as Arc<dyn MergeOperator>)
        });
        let merged = |options: &Options| {
            let operator = options.cf.merge_operator.as_ref().unwrap();
            String::from_utf8(operator.full_merge(b"k", None, &[b"x", b"y"]).unwrap()).unwrap()
        };
        let mut options = Options::default();
        for (text, joined) in [
            ("join\\:words", "x-y"),
            ("{id=join\\:words;count=2}", "x--y"),
            ("{word={;};id=join\\:words;}", "x;y"),
            ("{id=join\\:words;word={ {a;b} };count=2;}", "x {a;b}  {a;b} y"),
            ("{id=join\\:words;word=\\:\\#\\\\\\n;}", "x:#\\\ny"),
        ] {
            options.cf.set("merge_operator", text).unwrap();
            assert_eq!(merged(&options), joined, "{text}");
            let printed = options.cf.get("merge_operator").unwrap();
            let mut again = Options::default();
            again.cf.set("merge_operator", &printed).unwrap();
            assert_eq!(merged(&again), joined, "{printed}");
            let file = OptionsFile::to_text(&options.db, [("default", &options.cf)]);
            let path = std::path::Path::new("/OPTIONS-000007");
            let file = OptionsFile::parse(path, file.as_bytes(), &LoadOptions::default()).unwrap();
            again.cf = file.column_family("default").unwrap().clone();
            assert_eq!(merged(&again), joined, "{printed}");
        }
        for (option, text, says) in [
            ("merge_operator", "{id=join\\:words;size=2}", "join:words has no option size"),
            ("merge_operator", "{id=join\\:words;count=many}", "count=many: no such value"),
            ("merge_operator", "{id=uint64add;count=1}", "uint64add has no option count"),
            ("merge_operator", "{id=StringAppendOperator;delimiter=,;count=1}", "has no option count"),
            (
                "comparator",
                "{id=leveldb.BytewiseComparator;up=1}",
                "leveldb.BytewiseComparator has no option up",
            ),
            (
                "prefix_extractor",
                "{id=rocksdb.FixedPrefix;length=3;x=1}",
                "rocksdb.FixedPrefix has no option x",
            ),
            (
                "sst_partitioner_factory",
                "{id=SstPartitionerFixedPrefixFactory;length=3;x=1}",
                "SstPartitionerFixedPrefixFactory has no option x",
            ),
        ] {
            let error = options.cf.set(option, text).unwrap_err();
            assert_eq!(error.code(), ironstone_base::Code::InvalidArgument, "{error}");
            assert!(error.to_string().contains(says) && error.to_string().contains(option), "{error}");
        }
        register("plain", |_: &str| Ok(Arc::new(Heard("plain")) as Arc<dyn EventListener>));
        let error = options.db.set("listeners", "{ear:{id=plain;loud=1;}}").unwrap_err().to_string();
        assert!(error.contains("plain has no option loud"), "{error}");
        let checksums = "{id=FileChecksumGenCrc32cFactory;x=1}";
        let error = options.db.set("file_checksum_gen_factory", checksums).unwrap_err().to_string();
        assert!(error.contains("FileChecksumGenCrc32cFactory has no option x"), "{error}");
        options.cf.set("prefix_extractor", "{id=rocksdb.FixedPrefix;length=3;}").unwrap();
        assert_eq!(options.cf.get("prefix_extractor").unwrap(), "rocksdb.FixedPrefix.3");
    }

    #[test]
    fn an_object_that_cannot_be_made_says_why() {
        register("odd", |_: &str| -> Result<Arc<dyn SliceTransform>> {
            Err(ironstone_base::Error::invalid_argument("no table of parities"))
        });
        assert!(extractor("odd").unwrap_err().contains("no table of parities"));
        // Of another kind there is none of that name.
        let mut options = Options::default();
        assert!(options.cf.set("merge_operator", "odd").is_err());
    }
}
