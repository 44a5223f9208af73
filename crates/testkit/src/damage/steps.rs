//! How the small databases come into being: the same for every engine.

use super::{FAMILIES, Shape};
use crate::model::Change;
use std::ops::Range;

/// Something that is done to the database.
pub enum Step {
    /// A synced batch of these changes.
    Write(Vec<Change>),
    /// A flush of these column families.
    Flush(&'static [usize]),
    /// A compaction of one of them, with everything written anew.
    Rewrite(usize),
    /// Not done: says that everything so far is in tables.
    BeginUnflushed,
}

/// What is done to a database of `shape`, in order.
pub fn steps(shape: Shape) -> Vec<Step> {
    let mut steps = Vec::new();
    let write = |steps: &mut Vec<Step>, numbers: Range<u32>| {
        steps.extend(numbers.map(|number| Step::Write(changes(shape, number))));
    };
    write(&mut steps, 0..40);
    steps.extend([Step::Flush(&[0, 1]), Step::Rewrite(0)]);
    write(&mut steps, 30..60);
    steps.extend([Step::Flush(&[0, 1]), Step::BeginUnflushed]);
    write(&mut steps, 50..75);
    if shape == Shape::Flushed {
        steps.extend([Step::Flush(&[0, 1]), Step::BeginUnflushed]);
    } else {
        steps.push(Step::Flush(&[0])); // The WAL so far is still needed for the other one.
        write(&mut steps, 70..90);
    }
    steps
}

/// Batch `number`.
fn changes(shape: Shape, number: u32) -> Vec<Change> {
    let filler = if shape == Shape::Long { 300 } else { 1 };
    let mut changes = Vec::new();
    for name in FAMILIES {
        let key = format!("key{:04}", number * 37 % 101).into_bytes();
        let value = format!("{name} {number} {}", "v".repeat((number * 13 % 60 * filler) as usize));
        changes.push(Change::Put(name.to_owned(), key, value.into_bytes()));
        if number % 5 == 4 {
            let gone = format!("key{:04}", (number - 3) * 37 % 101).into_bytes();
            changes.push(Change::Delete(name.to_owned(), gone));
        }
        if number % 7 == 3 {
            let key = format!("key{:04}", number * 11 % 101).into_bytes();
            changes.push(Change::Append(name.to_owned(), key, number.to_string().into_bytes()));
        }
        if number % 13 == 5 {
            let [begin, end] = [0, 3].map(|more| format!("key{:04}", number % 90 + more).into_bytes());
            changes.push(Change::DeleteRange(name.to_owned(), begin, end));
        }
    }
    changes
}
