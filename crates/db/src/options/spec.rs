//! What is known about an option: name, type, default, whether it may change in an open database, and
//! whether the engine acts on it.

use super::text::OptionError;
use std::collections::BTreeMap;

/// Whether an option may change while the database is open (`SetOptions`, `SetDBOptions`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only at opening.
    Fixed,
    /// At any time.
    Mutable,
}

/// Since when RocksDB knows an option. What RocksDB 7 does not know is left out of OPTIONS files while
/// it has its default, so that RocksDB 7 accepts them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Since {
    /// RocksDB 7.8 writes it to OPTIONS files.
    V7,
    /// It came later.
    Later,
}

/// What the engine does with an option.
pub enum Status<T> {
    /// It has a field and an effect.
    Built {
        /// The value as text.
        get: fn(&T) -> String,
        /// Sets it from text; the error says what is wrong with the text.
        set: fn(&mut T, &str) -> Result<(), OptionError>,
    },
    /// Any value is accepted and kept, and has no effect, which is harmless because of `why`.
    Ignored {
        /// RocksDB's default.
        default: &'static str,
        /// Why that is harmless.
        why: &'static str,
    },
    /// Only values under which the feature is off are accepted.
    Refused {
        /// Those values, RocksDB's default first.
        off: &'static [&'static str],
        /// What would be needed.
        feature: &'static str,
    },
    /// RocksDB parses it for the sake of old files and does nothing with it; so do we. Not kept.
    Deprecated,
    /// Can be set from text under this name, but is not written: `to` says where it goes.
    Alias {
        /// Sets it from text.
        set: fn(&mut T, &str) -> Result<(), OptionError>,
        /// The option that it sets.
        to: &'static str,
    },
}

/// One row of a table of options.
pub struct OptionSpec<T: 'static> {
    /// RocksDB's name.
    pub name: &'static str,
    /// The type, in words.
    pub kind: &'static str,
    /// When it may change.
    pub change: Change,
    /// Since when RocksDB knows it.
    pub since: Since,
    /// What we do with it.
    pub status: Status<T>,
}

/// Values of options that are accepted without effect, so that they can be written back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept(BTreeMap<&'static str, String>);

impl Kept {
    /// The value that was set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
    pub(super) fn set(&mut self, name: &'static str, value: String) {
        self.0.insert(name, value);
    }
}

/// A struct of options with its table.
pub trait OptionStruct: Default + Clone + 'static {
    /// What messages call it: `DBOptions`, `CFOptions`, ...
    const NAME: &'static str;
    /// Its options, in the order in which they are written.
    fn table() -> &'static [OptionSpec<Self>];
    /// The values without effect; a struct without such options has none.
    fn kept(&self) -> Option<&Kept> {
        None
    }
    /// For setting them.
    fn kept_mut(&mut self) -> Option<&mut Kept> {
        None
    }
}

/// Declares a struct of options, its defaults and its table in one place.
///
/// - `built`: `field (as "name")?: type = default, Change, Since;` makes a field and a row.
/// - `rows`: rows without a field of their own.
/// - `fields`: fields that have no text form.
macro_rules! option_struct {
    (
        $(#[$meta:meta])*
        pub struct $struct:ident, $title:literal;
        built { $(
            $(#[$doc:meta])*
            $field:ident $(as $name:literal)? : $type:ty = $default:expr, $change:ident, $since:ident;
        )* }
        rows { $( $row:expr; )* }
        fields { $(
            $(#[$plain_doc:meta])*
            $plain:ident : $plain_type:ty = $plain_default:expr;
        )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $struct {
            $( $(#[$doc])* pub $field: $type, )*
            $( $(#[$plain_doc])* pub $plain: $plain_type, )*
            /// Options that are accepted without effect.
            pub kept: $crate::options::Kept,
        }

        impl Default for $struct {
            fn default() -> Self {
                Self {
                    $( $field: $default, )*
                    $( $plain: $plain_default, )*
                    kept: $crate::options::Kept::default(),
                }
            }
        }

        impl $crate::options::OptionStruct for $struct {
            const NAME: &'static str = $title;
            fn table() -> &'static [$crate::options::OptionSpec<Self>] {
                use $crate::options::spec::{Change, OptionSpec, Since, Status};
                #[allow(unused_imports)]
                use $crate::options::spec::{alias, deprecated, ignored, refused};
                use $crate::options::value::OptionValue;
                static TABLE: &[OptionSpec<$struct>] = &[
                    $( OptionSpec {
                        name: $crate::options::spec::name_or!($field $(, $name)?),
                        kind: <$type as OptionValue>::KIND,
                        change: Change::$change,
                        since: Since::$since,
                        status: Status::Built {
                            get: |options| options.$field.print(),
                            set: |options, text| options.$field.set(text),
                        },
                    }, )*
                    $( $row, )*
                ];
                TABLE
            }
            fn kept(&self) -> Option<&$crate::options::Kept> {
                Some(&self.kept)
            }
            fn kept_mut(&mut self) -> Option<&mut $crate::options::Kept> {
                Some(&mut self.kept)
            }
        }
    };
}

macro_rules! name_or {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident, $name:literal) => {
        $name
    };
}
pub(super) use {name_or, option_struct};

/// A row of an option whose value changes nothing.
pub(super) const fn ignored<T>(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    change: Change,
    since: Since,
    why: &'static str,
) -> OptionSpec<T> {
    OptionSpec { name, kind, change, since, status: Status::Ignored { default, why } }
}

/// A row of an option that only accepts the values of a feature that is off.
pub(super) const fn refused<T>(
    name: &'static str,
    kind: &'static str,
    off: &'static [&'static str],
    change: Change,
    since: Since,
    feature: &'static str,
) -> OptionSpec<T> {
    OptionSpec { name, kind, change, since, status: Status::Refused { off, feature } }
}

/// A row of an option that RocksDB gave up.
pub(super) const fn deprecated<T>(name: &'static str, kind: &'static str) -> OptionSpec<T> {
    OptionSpec { name, kind, change: Change::Fixed, since: Since::V7, status: Status::Deprecated }
}

/// A row of another name.
pub(super) const fn alias<T>(
    name: &'static str,
    kind: &'static str,
    change: Change,
    set: fn(&mut T, &str) -> Result<(), OptionError>,
    to: &'static str,
) -> OptionSpec<T> {
    OptionSpec { name, kind, change, since: Since::V7, status: Status::Alias { set, to } }
}
