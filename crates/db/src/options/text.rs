//! The grammar of option strings: `a=b;c={d=e;f=g}`, and setting options by it.
//!
//! A value ends at the next `;`, unless it is in braces. In values `\` escapes `\`, `#`, `:`, and stands
//! with `n` and `r` for line ends.

use super::spec::{Change, OptionSpec, OptionStruct, Status};
use super::value::OptionValue;
use ironstone_base::Error;
use std::borrow::Cow;

/// What is wrong with the text of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    unsupported: bool,
    message: String,
}

impl OptionError {
    /// The text asks for a feature that is not built.
    pub fn not_supported(message: impl Into<String>) -> Self {
        Self { unsupported: true, message: message.into() }
    }

    fn context(mut self, context: &str) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    pub(crate) fn into_error(self) -> Error {
        if self.unsupported {
            Error::not_supported(self.message)
        } else {
            Error::invalid_argument(self.message)
        }
    }
}

impl std::fmt::Display for OptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<String> for OptionError {
    fn from(message: String) -> Self {
        Self { unsupported: false, message }
    }
}

impl From<&str> for OptionError {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// How strict to be about names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetRules {
    /// Pass over names that do not exist: they may come from a newer version.
    pub ignore_unknown: bool,
    /// Pass over values that would need what is not built. Such options keep their defaults.
    pub ignore_unsupported: bool,
    /// Accept only what may change in an open database.
    pub mutable_only: bool,
}

/// Puts `\` before what has a meaning in an OPTIONS file.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '#' | ':' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A value that somebody wrote, with `\` before what would end it in an OPTIONS file; what is escaped stays as it is.
pub fn as_one_line(value: &str) -> Cow<'_, str> {
    if !value.contains(['#', '\n', '\r']) {
        return value.into();
    }
    let (mut line, mut escaped) = (String::with_capacity(value.len()), false);
    for c in value.chars() {
        match c {
            '#' if !escaped => line.push_str("\\#"),
            '\n' => line.push_str(if escaped { "n" } else { "\\n" }),
            '\r' => line.push_str(if escaped { "r" } else { "\\r" }),
            _ => line.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    line.into()
}

/// Undoes [`escape`].
pub fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(escaped) => escaped,
                None => '\\',
            },
            _ => c,
        });
    }
    plain
}

/// Without the braces around it, however many there are.
pub fn unbraced(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        if !balanced(inner) {
            break; // `{a}:{b}`: the two braces are not a pair.
        }
        text = inner.trim();
    }
    text
}

/// The elements of a list with `:` between them, where they may be escaped or in braces.
pub fn elements(text: &str) -> Vec<&str> {
    let text = unbraced(text);
    let (mut elements, mut begun, mut depth, mut escaped) = (Vec::new(), 0, 0i32, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {}
            '{' => depth += 1,
            '}' => depth -= 1,
            ':' if depth == 0 => {
                elements.push(&text[begun..at]);
                begun = at + 1;
            }
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    elements.push(&text[begun..]);
    elements.into_iter().map(str::trim).filter(|element| !element.is_empty()).collect()
}

fn balanced(text: &str) -> bool {
    let mut depth = 0i32;
    let opens = |c| match c {
        '{' => 1,
        '}' => -1,
        _ => 0,
    };
    text.chars().all(|c| {
        depth += opens(c);
        depth >= 0
    }) && depth == 0
}

/// Splits `a=b;c={d=e}` into names and values; values keep their braces.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, OptionError> {
    let mut rest = unbraced(text);
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let equals = rest.find(['=', '{', '}', ';']).filter(|&at| rest.as_bytes()[at] == b'=');
        let Some((name, after)) = equals.map(|at| (rest[..at].trim(), rest[at + 1..].trim_start())) else {
            return Err(format!("`{rest}` where name=value belongs").into());
        };
        if name.is_empty() {
            return Err(format!("no name before `={after}`").into());
        }
        let len = value_len(after).ok_or_else(|| format!("braces of `{name}` do not match"))?;
        pairs.push((name.to_owned(), after[..len].trim().to_owned()));
        rest = match after[len..].trim_start() {
            "" => "",
            next => next.strip_prefix(';').ok_or_else(|| format!("`{next}` after the value of `{name}`"))?,
        };
        rest = rest.trim_start();
    }
    Ok(pairs)
}

/// How long the value is that `text` starts with.
fn value_len(text: &str) -> Option<usize> {
    if !text.starts_with('{') {
        return Some(text.find(';').unwrap_or(text.len()));
    }
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Splits the text of an object in its id and its properties: `id`, `{id=x;a=b}` or `x` in braces.
pub fn object(text: &str) -> Result<(String, Vec<(String, String)>), OptionError> {
    let text = unbraced(text);
    if !text.contains('=') {
        return Ok((text.trim_end_matches(';').to_owned(), Vec::new()));
    }
    let mut properties = pairs(text)?;
    let at = properties.iter().position(|(name, _)| name == "id").ok_or("an object without id")?;
    let (_, id) = properties.remove(at);
    Ok((id, properties))
}

/// The id of an object.
pub fn object_id(text: &str) -> Result<String, OptionError> {
    object(text).map(|(id, _)| id)
}

/// The row of `name`.
pub fn find<T: OptionStruct>(name: &str) -> Option<&'static OptionSpec<T>> {
    T::table().iter().find(|spec| spec.name == name)
}

/// Sets one option from its text.
pub fn set_one<T: OptionStruct>(options: &mut T, name: &str, text: &str) -> Result<(), OptionError> {
    set_by_rules(options, name, text, SetRules::default())
}

/// Sets one option from its text as far as `rules` allow. `outer.inner` sets a field of a nested struct.
pub fn set_by_rules<T: OptionStruct>(
    options: &mut T,
    name: &str,
    text: &str,
    rules: SetRules,
) -> Result<(), OptionError> {
    if let Some((outer, inner)) = name.split_once('.') {
        return set_by_rules(options, outer, &format!("{{{inner}={text};}}"), rules);
    }
    let Some(spec) = find::<T>(name) else {
        let unknown = OptionError::from(format!("{} has no option {name}", T::NAME));
        return if rules.ignore_unknown { Ok(()) } else { Err(unknown) };
    };
    if rules.mutable_only && spec.change == Change::Fixed && !matches!(spec.status, Status::Deprecated) {
        return Err(format!("{name} cannot change while the database is open").into());
    }
    match set_spec(options, spec, text.trim()) {
        Err(error) if error.unsupported && rules.ignore_unsupported => Ok(()),
        result => result.map_err(|error| error.context(&format!("{name}={text}"))),
    }
}

fn set_spec<T: OptionStruct>(options: &mut T, spec: &OptionSpec<T>, text: &str) -> Result<(), OptionError> {
    match &spec.status {
        Status::Built { set, .. } | Status::Alias { set, .. } => set(options, text),
        Status::Deprecated => Ok(()),
        Status::Ignored { .. } => {
            check_kind(spec.kind, text)?;
            options.kept_mut().ok_or("nowhere to keep it")?.set(spec.name, text.to_owned());
            Ok(())
        }
        Status::Refused { off, .. } if is_off(spec.kind, text, off) => Ok(()),
        Status::Refused { feature, .. } => Err(OptionError::not_supported(*feature)),
    }
}

fn is_off(kind: &str, text: &str, off: &[&str]) -> bool {
    let same = |off: &&str| match kind {
        "bool" => bool::parse(text) == bool::parse(off),
        "double" => f64::parse(text) == f64::parse(off),
        _ => unbraced(text) == *off,
    };
    off.iter().any(same)
}

/// Whether `text` can be of a type that we keep without using.
fn check_kind(kind: &str, text: &str) -> Result<(), OptionError> {
    match kind {
        "bool" => bool::parse(text).map(drop),
        "int" => i32::parse(text).map(drop),
        "uint32" => u32::parse(text).map(drop),
        "uint64" => u64::parse(text).map(drop),
        "size" => usize::parse(text).map(drop),
        "double" => f64::parse(text).map(drop),
        _ => Ok(()),
    }
}

/// Sets every option that `text`, an option string, names.
pub fn set_nested<T: OptionStruct>(options: &mut T, text: &str) -> Result<(), OptionError> {
    pairs(text)?.iter().try_for_each(|(name, value)| set_one(options, name, value))
}

/// The text of one option; `None` if there is none of that name, or nothing to say about it.
pub fn get_one<T: OptionStruct>(options: &T, name: &str) -> Option<String> {
    get_spec(options, find::<T>(name)?)
}

fn get_spec<T: OptionStruct>(options: &T, spec: &OptionSpec<T>) -> Option<String> {
    match &spec.status {
        Status::Built { get, .. } => Some(get(options)),
        Status::Ignored { default, .. } => {
            Some(options.kept().and_then(|kept| kept.get(spec.name)).unwrap_or(default).to_owned())
        }
        Status::Refused { off, .. } => off.first().map(|&text| text.to_owned()),
        Status::Deprecated | Status::Alias { .. } => None,
    }
}

/// Names and texts of all options that a file should have, see [`super::Since`].
pub fn print_pairs<T: OptionStruct>(options: &T) -> Vec<(&'static str, String)> {
    let defaults = T::default();
    let mut printed = Vec::new();
    for spec in T::table() {
        if NEVER_WRITTEN.contains(&spec.name) {
            continue;
        }
        let Some(text) = get_spec(options, spec) else { continue };
        let needed = || get_spec(&defaults, spec).as_ref() != Some(&text);
        if spec.since == super::Since::V7 || needed() {
            printed.push((spec.name, text));
        }
    }
    printed
}

/// What several databases may share, or what only makes sense in code.
const NEVER_WRITTEN: &[&str] =
    &["block_cache", "statistics", "env", "rate_limiter_bytes_per_sec", "blob_cache"];

/// `{a=b;c=d;}`, for a struct inside another.
pub fn print_nested<T: OptionStruct>(options: &T) -> String {
    let fields = print_pairs(options).into_iter().map(|(name, text)| format!("{name}={text};"));
    format!("{{{}}}", fields.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_braces_of_values() {
        let split = |text| pairs(text).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            split("a=1; b = {c=2;d={e=3}} ;f="),
            [pair("a", "1"), pair("b", "{c=2;d={e=3}}"), pair("f", "")]
        );
        assert_eq!(split("{{a=1;}}"), [pair("a", "1")]);
        assert_eq!(split("a=b=c;"), [pair("a", "b=c")]);
        assert_eq!(split(""), []);
    }

    #[test]
    fn broken_strings_are_refused() {
        for text in ["a", "a;b=c", "=1", "a={b=c", "a={b=c}d", "a=1;}", "{a=1"] {
            assert!(pairs(text).is_err(), "{text}");
        }
    }

    #[test]
    fn braces_that_are_no_pair_stay() {
        assert_eq!(unbraced("{a}:{b}"), "{a}:{b}");
        assert_eq!(unbraced(" {{a}} "), "a");
        assert_eq!(unbraced("{}"), "");
    }

    #[test]
    fn elements_keep_what_is_in_braces_or_escaped() {
        assert_eq!(elements("{a:{id=b;x={c:d}}:e\\:f: }"), ["a", "{id=b;x={c:d}}", "e\\:f"]);
        assert_eq!(elements("{id=a}:{id=b}"), ["{id=a}", "{id=b}"]);
        assert!(elements("{}").is_empty() && elements(" ").is_empty());
    }

    #[test]
    fn escaping_is_undone() {
        let text = "a\\b#c:d\ne\rf;g=h";
        assert_eq!(unescape(&escape(text)), text);
        assert!(!escape(text).contains('\n'));
    }

    #[test]
    fn objects_have_an_id_in_any_form() {
        assert_eq!(object("BlockBasedTable").unwrap(), ("BlockBasedTable".to_owned(), vec![]));
        let (id, properties) = object("{id=VectorRepFactory;count=0;}").unwrap();
        assert_eq!((id.as_str(), properties.len()), ("VectorRepFactory", 1));
        assert!(object("{a=b}").is_err());
    }
}
