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

use crate::listener::EventListener;
use crate::options::OptionError;
use crate::wal_filter::WalFilter;
use ironstone_base::merge::MergeOperator;
use ironstone_base::sync::{Arc, OnceLock, RwLock};
use ironstone_base::{Comparator, Result, SliceTransform};
use ironstone_compaction::{CompactionFilter, CompactionFilterFactory, SstPartitionerFactory};
use ironstone_sst::{FileChecksumGenFactory, FlushBlockPolicyFactory, TablePropertiesCollectorFactory};
use ironstone_vfs::{Clock, Env, FileSystem};
use std::any::{Any, TypeId};

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

/// Makes an object of the whole name that it was asked for.
type Make<T> = Box<dyn Fn(&str) -> Result<T> + Send + Sync>;

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
    add(name.into(), false, Box::new(make));
}

/// Objects whose names begin with `prefix` are made by `make`, which is told the whole name. A whole name that is registered
/// goes before, and a longer prefix.
pub fn register_prefix<T: Registered>(
    prefix: impl Into<String>,
    make: impl Fn(&str) -> Result<T> + Send + Sync + 'static,
) {
    add(prefix.into(), true, Box::new(make));
}

/// The object of that name, if one is registered.
pub(crate) fn make<T: Registered>(id: &str) -> std::result::Result<Option<T>, OptionError> {
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
    make(id).map(Some).map_err(|error| format!("{id}: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

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
            ("{id=elsewhere;x=1}", "options of its own"),
        ] {
            let error = options.db.set("env", text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(!options.db.to_string().contains("env="), "it is never written");
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
