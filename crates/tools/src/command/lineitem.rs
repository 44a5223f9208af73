//! The rows of TPC-H's table `lineitem`, as keys and values.
//!
//! ```text
//! key    orderkey|partkey|suppkey                     in decimal
//! value  orderkey|partkey|suppkey|line|...|comment|   the row, as TPC-H writes it
//! ```
//! An order may have two lines for one part of one supplier: then they share their key, and the later
//! one wins.

use std::fmt::Write;
use std::mem;
use tpchgen::generators::{LineItemGenerator, LineItemGeneratorIterator};

/// About how many rows a scale factor of 1 has.
pub const ROWS_PER_SCALE: f64 = 6_000_000.0;

/// Which rows: all of a scale factor, or the first so many of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LineItems {
    scale: f64,
    limit: u64,
}

impl LineItems {
    /// All rows of a scale factor.
    pub fn of_scale(scale: f64) -> Self {
        Self { scale, limit: u64::MAX }
    }
    /// `count` rows of the smallest scale factor that has them.
    pub fn first(count: u64) -> Self {
        // Orders have 1 to 7 lines, so that the number of rows is not known before.
        Self { scale: (count as f64 * 1.02 / ROWS_PER_SCALE).max(0.001), limit: count }
    }
    /// About how many rows there are.
    pub fn expected_rows(&self) -> u64 {
        self.limit.min((self.scale * ROWS_PER_SCALE) as u64)
    }
    /// The rows, from the first on; the same each time.
    pub fn rows(&self) -> Rows {
        Rows {
            items: LineItemGenerator::new(self.scale, 1, 1).iter(),
            left: self.limit,
            order: Vec::new(),
            spare: Vec::new(),
            next: None,
        }
    }
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    order: i64,
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// A later row of the same key takes its place.
    pub superseded: bool,
}

/// The rows one by one. Give rows back with [`Rows::recycle`] and nothing is allocated for them.
pub struct Rows {
    items: LineItemGeneratorIterator<'static>,
    left: u64,
    /// The rest of the current order, last line first.
    order: Vec<Row>,
    spare: Vec<Row>,
    /// The first line of the order after it.
    next: Option<Row>,
}

impl Rows {
    /// Takes back the memory of a row.
    pub fn recycle(&mut self, row: Row) {
        self.spare.push(row);
    }

    fn generate(&mut self) -> Option<Row> {
        self.left = self.left.checked_sub(1)?;
        let item = self.items.next()?;
        let mut row = self.spare.pop().unwrap_or_default();
        row.key.clear();
        row.value.clear();
        row.superseded = false;
        row.order = item.l_orderkey;
        write!(row.key, "{}|{}|{}", item.l_orderkey, item.l_partkey, item.l_suppkey).expect("text grows");
        write!(row.value, "{item}").expect("text grows");
        Some(row)
    }

    /// Reads the lines of the next order, and finds those that share a key.
    fn read_order(&mut self) -> Option<()> {
        let first = self.next.take().or_else(|| self.generate())?;
        let mut lines = mem::take(&mut self.order);
        lines.push(first);
        while let Some(row) = self.generate() {
            if row.order != lines[0].order {
                self.next = Some(row);
                break;
            }
            lines.push(row);
        }
        for at in 0..lines.len() {
            lines[at].superseded = lines[at + 1..].iter().any(|later| later.key == lines[at].key);
        }
        lines.reverse();
        self.order = lines;
        Some(())
    }
}

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.order.is_empty() {
            self.read_order()?;
        }
        self.order.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_first_row_is_tpchs() {
        let row = LineItems::of_scale(1.0).rows().next().unwrap();
        assert_eq!(row.key, "1|155190|7706");
        assert!(
            row.value.starts_with("1|155190|7706|1|17|21168.23|0.04|0.02|N|O|1996-03-13|"),
            "{}",
            row.value
        );
    }

    #[test]
    fn rows_are_counted_and_the_last_of_a_key_is_not_superseded() {
        let items = LineItems::first(50_000);
        let mut last = BTreeMap::new();
        let mut kept = BTreeMap::new();
        let mut count = 0;
        for row in items.rows() {
            count += 1;
            last.insert(row.key.clone(), row.value.clone());
            if !row.superseded {
                assert_eq!(kept.insert(row.key, row.value), None);
            }
        }
        assert_eq!(count, 50_000);
        assert_eq!(last, kept);
    }
}
