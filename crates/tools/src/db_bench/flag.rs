//! What is known about a flag: its name, type and default, and what db_bench does with it.

use std::fmt;

/// The type of a flag's value, as gflags names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// true or false.
    Bool,
    /// 32 bits with sign.
    Int32,
    /// 64 bits with sign.
    Int64,
    /// 32 bits.
    Uint32,
    /// 64 bits.
    Uint64,
    /// A floating-point number.
    Double,
    /// Any text.
    Text,
    /// Whatever it was when RocksDB still had the flag: any text, or none.
    Forgotten,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Double => "double",
            Self::Text => "string",
            Self::Forgotten => "any",
        })
    }
}

impl Kind {
    /// The value that `text` stands for, in the one form that option strings take it; `None` if it stands for none.
    pub fn normalize(self, text: &str) -> Option<String> {
        match self {
            Self::Bool => bool::parse(text).map(|value| value.print()),
            Self::Int32 => i32::parse(text).map(|value| value.print()),
            Self::Int64 => i64::parse(text).map(|value| value.print()),
            Self::Uint32 => u32::parse(text).map(|value| value.print()),
            Self::Uint64 => u64::parse(text).map(|value| value.print()),
            Self::Double => f64::parse(text).map(|value| value.print()),
            Self::Text | Self::Forgotten => Some(text.to_owned()),
        }
    }
    /// Whether `--flag` alone is a value, and `--noflag` another.
    pub fn stands_alone(self) -> bool {
        matches!(self, Self::Bool | Self::Forgotten)
    }
}

/// A type of flag.
pub trait FlagValue: Sized {
    /// What gflags calls it.
    const KIND: Kind;
    /// The value of `text`, as gflags reads it.
    fn parse(text: &str) -> Option<Self>;
    /// The text of a value.
    fn print(&self) -> String;
}

impl FlagValue for bool {
    const KIND: Kind = Kind::Bool;
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        }
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

/// A whole number: decimal, or hexadecimal after `0x`.
fn parse_integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => i128::from(u64::from_str_radix(hexadecimal, 16).ok()?),
        None => i128::from(digits.parse::<u64>().ok()?),
    };
    Some(if negative { -magnitude } else { magnitude })
}

macro_rules! integer_flags {
    ($($type:ty => $kind:ident,)*) => { $(
        impl FlagValue for $type {
            const KIND: Kind = Kind::$kind;
            fn parse(text: &str) -> Option<Self> {
                parse_integer(text).and_then(|number| Self::try_from(number).ok())
            }
            fn print(&self) -> String {
                self.to_string()
            }
        }
    )* };
}
integer_flags! { i32 => Int32, i64 => Int64, u32 => Uint32, u64 => Uint64, }

impl FlagValue for f64 {
    const KIND: Kind = Kind::Double;
    fn parse(text: &str) -> Option<Self> {
        text.trim().parse().ok().filter(|number: &f64| number.is_finite())
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for String {
    const KIND: Kind = Kind::Text;
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn print(&self) -> String {
        self.clone()
    }
}

/// What db_bench does with a flag.
pub enum Role<F: 'static> {
    /// It is a field of the flags, and steers the benchmarks.
    Bench {
        /// The value as text.
        get: fn(&F) -> String,
        /// Sets it from text; false if the text is no such value.
        set: fn(&mut F, &str) -> bool,
    },
    /// It sets this option of the database.
    Database(&'static str),
    /// It sets this option of every column family.
    ColumnFamily(&'static str),
    /// It sets this option of every table.
    Table(&'static str),
    /// Any value is accepted and changes nothing, which is harmless because of this.
    Ignored(&'static str),
    /// Only the default is accepted: more would need this.
    Refused(&'static str),
}

/// A flag.
pub struct FlagSpec<F: 'static> {
    /// Its name, without dashes.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its default, for flags that are no fields.
    pub default: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// What db_bench does with it.
    pub role: Role<F>,
}

/// A row for a flag that sets an option of the database.
pub(super) const fn database<F>(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    option: &'static str,
) -> FlagSpec<F> {
    FlagSpec { name, kind, default, help: "an option of the database", role: Role::Database(option) }
}

/// A row for a flag that sets an option of the column families.
pub(super) const fn column_family<F>(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    option: &'static str,
) -> FlagSpec<F> {
    FlagSpec {
        name,
        kind,
        default,
        help: "an option of the column families",
        role: Role::ColumnFamily(option),
    }
}

/// A row for a flag that sets an option of the tables.
pub(super) const fn table<F>(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    option: &'static str,
) -> FlagSpec<F> {
    FlagSpec { name, kind, default, help: "an option of the tables", role: Role::Table(option) }
}

/// A row for a flag without effect.
pub(super) const fn ignored<F>(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    why: &'static str,
) -> FlagSpec<F> {
    FlagSpec { name, kind, default, help: "ignored", role: Role::Ignored(why) }
}

/// A row for a flag that RocksDB once had: any text is accepted.
pub(super) const fn retired<F>(name: &'static str) -> FlagSpec<F> {
    const WHY: &str = "RocksDB retired it";
    FlagSpec { name, kind: Kind::Forgotten, default: "", help: "ignored", role: Role::Ignored(WHY) }
}

/// A row for a flag of a feature that is not built.
pub(super) const fn refused<F>(
    name: &'static str,
    kind: Kind,
    off: &'static str,
    feature: &'static str,
) -> FlagSpec<F> {
    FlagSpec { name, kind, default: off, help: "not supported", role: Role::Refused(feature) }
}

/// Declares the flags: those of `bench` are fields, those of `rows` are not.
macro_rules! flags {
    (
        $(#[$meta:meta])*
        pub struct $struct:ident;
        bench { $( #[doc = $help:literal] $field:ident: $type:ty = $default:expr; )* }
        rows { $( $row:expr; )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $struct {
            $( #[doc = $help] pub $field: $type, )*
            /// The flags of the command line that are no fields, with their values.
            pub others: std::collections::BTreeMap<&'static str, String>,
            /// What to say about flags that were given and have no effect.
            pub notes: Vec<String>,
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $( $field: $default, )* others: Default::default(), notes: Vec::new() }
            }
        }

        impl $struct {
            /// All flags that db_bench knows.
            pub fn table() -> &'static [FlagSpec<$struct>] {
                static TABLE: &[FlagSpec<$struct>] = &[
                    $( FlagSpec {
                        name: stringify!($field),
                        kind: <$type as FlagValue>::KIND,
                        default: "",
                        help: $help,
                        role: Role::Bench {
                            get: |flags| flags.$field.print(),
                            set: |flags, text| {
                                let value = <$type as FlagValue>::parse(text);
                                value.map(|value| flags.$field = value).is_some()
                            },
                        },
                    }, )*
                    $( $row, )*
                ];
                TABLE
            }
        }
    };
}
pub(super) use flags;
