//! The same work on many files, by several threads.

use ironstone_base::Result;
use ironstone_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ironstone_base::sync::{Mutex, thread};

/// Does `work` on each of `items` and its place, by up to `threads` threads, the caller's among them. The answers in the order
/// of the items, or the error of the first of those that failed; after a failure no further item is begun.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    if threads <= 1 || items.len() <= 1 {
        return items.iter().enumerate().map(|(at, item)| work(at, item)).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<Result<R>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let run = || {
        while !failed.load(Ordering::Relaxed) {
            // Relaxed: the number is all that it says, and the results have locks.
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = work(at, item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            *results[at].lock() = Some(result);
        }
    };
    let run = &run;
    thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            // Without another thread the work takes longer, that is all.
            let _ = thread::Builder::new().name("ironstone".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
    results.into_iter().filter_map(Mutex::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::Error;

    #[test]
    fn answers_come_in_order_and_the_first_failure_ends_it() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [0, 1, 4, 200] {
            let doubled = in_parallel(threads, &items, |at, item| Ok(at + item)).unwrap();
            assert_eq!(doubled, (0..100).map(|item| 2 * item).collect::<Vec<_>>());
            let done = AtomicUsize::new(0);
            let failed = in_parallel(threads, &items, |_, item| {
                done.fetch_add(1, Ordering::Relaxed);
                if *item == 7 { Err(Error::corruption("seven")) } else { Ok(()) }
            });
            assert!(failed.unwrap_err().to_string().contains("seven"));
            assert!(threads > 4 || done.into_inner() < 100, "{threads} threads went on");
        }
    }
}
