//! Many point lookups at once: each table is asked once for all keys that it may hold, so that its
//! reads go out together.

use super::get::{Found, from_table, in_memtable, not_in_memtables};
use super::pinned_value::PinnedValue;
use super::view::{LevelView, SuperVersion};
use ironstone_base::{InternalKey, InternalKeyBuf, Result, SequenceNumber};
use ironstone_sst::{ReadContext, ReadTier};

/// A key that has not been found yet.
struct Pending<'a> {
    /// Its place among the keys that were asked for.
    index: usize,
    user_key: &'a [u8],
    prefix: u64,
    target: InternalKeyBuf,
}

impl SuperVersion {
    /// The values of `keys` at `at`, in the order of `keys`.
    pub(crate) fn multi_get(
        &self,
        keys: &[&[u8]],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Vec<Result<Option<PinnedValue>>> {
        let mut results: Vec<Result<Option<PinnedValue>>> = keys.iter().map(|_| Ok(None)).collect();
        let mut pending = self.not_in_memtables(keys, at, context, &mut results);
        if context.read_tier == ReadTier::Memtable {
            for key in pending {
                results[key.index] = Err(not_in_memtables());
            }
            return results;
        }
        let order = &self.comparator.user;
        pending.sort_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| order.compare(a.user_key, b.user_key)));
        for (level, view) in self.levels.iter().enumerate() {
            if pending.is_empty() {
                break;
            }
            if level == 0 {
                for table in 0..view.tables.len() {
                    let asked: Vec<usize> =
                        (0..pending.len()).filter(|&at| self.covers(view, table, &pending[at])).collect();
                    self.ask(view, table, &asked, context, &mut pending, &mut results);
                }
            } else {
                self.ask_level(view, context, &mut pending, &mut results);
            }
        }
        results
    }

    fn not_in_memtables<'a>(
        &self,
        keys: &[&'a [u8]],
        at: SequenceNumber,
        context: &ReadContext,
        results: &mut [Result<Option<PinnedValue>>],
    ) -> Vec<Pending<'a>> {
        let mut pending = Vec::with_capacity(keys.len());
        'keys: for (index, &user_key) in keys.iter().enumerate() {
            if context.read_tier != ReadTier::Persisted {
                for memtable in self.memtables() {
                    match in_memtable(memtable, user_key, at) {
                        Ok(Found::Nothing) => {}
                        found => {
                            results[index] = self.settle(found, user_key, at, context);
                            continue 'keys;
                        }
                    }
                }
            }
            let prefix = self.comparator.user.order_prefix(user_key);
            pending.push(Pending { index, user_key, prefix, target: InternalKeyBuf::for_seek(user_key, at) });
        }
        pending
    }

    /// The answer for a key that a place knows about.
    fn settle(
        &self,
        found: Result<Found>,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Result<Option<PinnedValue>> {
        match found? {
            Found::Value(value) => Ok(Some(value)),
            Found::Nothing | Found::Deleted => Ok(None),
            Found::Operand => self.get_merged(user_key, at, context),
        }
    }

    fn covers(&self, view: &LevelView, table: usize, key: &Pending<'_>) -> bool {
        view.files.may_hold(table, &self.comparator.user, key.user_key)
    }

    /// Asks the tables of a sorted level, each for the run of keys that falls into it.
    fn ask_level(
        &self,
        view: &LevelView,
        context: &ReadContext,
        pending: &mut Vec<Pending<'_>>,
        results: &mut [Result<Option<PinnedValue>>],
    ) {
        // From the last key to the first, so that removing found ones leaves the rest in place.
        let mut end = pending.len();
        while end > 0 {
            let table = view.files.find(&self.comparator, pending[end - 1].target.as_key());
            let mut begin = end - 1;
            while begin > 0 && view.files.find(&self.comparator, pending[begin - 1].target.as_key()) == table
            {
                begin -= 1;
            }
            if table < view.tables.len() {
                let asked: Vec<usize> =
                    (begin..end).filter(|&at| self.covers(view, table, &pending[at])).collect();
                self.ask(view, table, &asked, context, pending, results);
            }
            end = begin;
        }
    }

    /// Asks one table for `asked` (ascending places in `pending`), and removes what is settled.
    fn ask(
        &self,
        view: &LevelView,
        table: usize,
        asked: &[usize],
        context: &ReadContext,
        pending: &mut Vec<Pending<'_>>,
        results: &mut [Result<Option<PinnedValue>>],
    ) {
        if asked.is_empty() {
            return;
        }
        let targets: Vec<InternalKey<'_>> = asked.iter().map(|&at| pending[at].target.as_key()).collect();
        let ask = view.tables[table].with_reader(|reader| {
            let answers = reader.multi_get(context, &targets).into_iter().zip(&targets);
            let found = answers.map(|(answer, target)| {
                from_table(answer?, reader.covering(target.user_key(), target.sequence()))
            });
            Ok(found.collect::<Vec<_>>())
        });
        let answers = match ask {
            Ok(answers) => answers,
            Err(error) => asked.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut settled = Vec::new();
        for (&at, answer) in asked.iter().zip(answers) {
            if !matches!(answer, Ok(Found::Nothing)) {
                let key = &pending[at];
                results[key.index] =
                    self.settle(answer, key.user_key, key.target.as_key().sequence(), context);
                settled.push(at);
            }
        }
        for at in settled.into_iter().rev() {
            pending.remove(at);
        }
    }
}
