//! Small numbers for threads: one that is alive has its number alone, and the next thread gets the number of one that ended.

/// How many threads at a time have a number.
pub const THREAD_NUMBERS: usize = 64;

/// The number of this thread, below [`THREAD_NUMBERS`]. `None`: so many others have one, or this thread is about to end.
///
/// Whoever gets a number sees all that the thread that had it before has done.
#[cfg(not(any(feature = "simulation", feature = "loom")))]
#[inline]
pub fn thread_number() -> Option<usize> {
    match numbers::OF_THREAD.get() {
        numbers::UNKNOWN => numbers::claim(),
        number => number.checked_sub(1),
    }
}

/// `None`: many threads of a simulator or a model share one of the system.
#[cfg(any(feature = "simulation", feature = "loom"))]
pub fn thread_number() -> Option<usize> {
    None
}

#[cfg(not(any(feature = "simulation", feature = "loom")))]
mod numbers {
    use super::THREAD_NUMBERS;
    use crate::sync::Mutex;
    use std::cell::Cell;

    /// What [`OF_THREAD`] says before a thread has asked, and where it has no number.
    pub const UNKNOWN: usize = usize::MAX;
    const NONE: usize = 0;

    /// One bit for each number that a thread has.
    static TAKEN: Mutex<u64> = Mutex::new(0);
    const _: () = assert!(THREAD_NUMBERS == u64::BITS as usize);

    thread_local! {
        /// The number plus one.
        pub static OF_THREAD: Cell<usize> = const { Cell::new(UNKNOWN) };
        static CLAIM: Claim = Claim::new();
    }

    /// A number, given back when its thread ends.
    struct Claim(Option<usize>);

    impl Claim {
        fn new() -> Self {
            let mut taken = TAKEN.lock();
            let number = taken.trailing_ones() as usize;
            if number == THREAD_NUMBERS {
                return Self(None);
            }
            *taken |= 1 << number;
            Self(Some(number))
        }
    }

    impl Drop for Claim {
        fn drop(&mut self) {
            OF_THREAD.set(NONE); // What still counts in this thread must not do it in the name of the next.
            if let Some(number) = self.0 {
                *TAKEN.lock() &= !(1 << number);
            }
        }
    }

    #[cold]
    pub fn claim() -> Option<usize> {
        let number = CLAIM.try_with(|claim| claim.0).ok().flatten();
        OF_THREAD.set(number.map_or(NONE, |number| number + 1));
        number
    }
}

#[cfg(all(test, not(any(feature = "simulation", feature = "loom"))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread::spawn_named};
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::Barrier;
    use std::sync::mpsc::{Sender, channel};

    #[test]
    fn threads_that_live_together_have_different_numbers_and_more_than_there_are_have_none() {
        let own = thread_number();
        assert_eq!(thread_number(), own, "it stays");
        let together = Arc::new(Barrier::new(THREAD_NUMBERS + 1));
        let threads: Vec<_> = (0..=THREAD_NUMBERS)
            .map(|_| {
                let together = Arc::clone(&together);
                spawn_named("number", move || {
                    let number = thread_number();
                    together.wait();
                    assert_eq!(thread_number(), number);
                    number
                })
            })
            .collect();
        let numbers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let some: Vec<_> = numbers.iter().copied().flatten().collect();
        assert!(some.len() < numbers.len(), "one thread more than numbers");
        assert_eq!(some.iter().collect::<BTreeSet<_>>().len(), some.len());
        assert!(own.is_none_or(|own| !some.contains(&own)));
        assert!(some.iter().all(|&number| number < THREAD_NUMBERS));
    }

    #[test]
    fn numbers_of_threads_that_ended_are_given_again() {
        for _ in 0..20 {
            let numbers: Vec<_> =
                (0..THREAD_NUMBERS).map(|_| spawn_named("number", thread_number).join().unwrap()).collect();
            // Tests beside this one may have all of them at times.
            if numbers.iter().any(Option::is_some) && numbers.last().is_some_and(Option::is_some) {
                return;
            }
        }
        panic!("no number came back");
    }

    #[test]
    fn a_thread_about_to_end_has_no_number() {
        /// Says what number the thread has when this is dropped.
        struct AtTheEnd(Cell<Option<Sender<Option<usize>>>>);
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                if let Some(answer) = self.0.take() {
                    answer.send(thread_number()).unwrap();
                }
            }
        }
        thread_local! {
            static FIRST: AtTheEnd = const { AtTheEnd(Cell::new(None)) };
            static LAST: AtTheEnd = const { AtTheEnd(Cell::new(None)) };
        }
        let (answer, answered) = channel();
        let thread = spawn_named("number", move || {
            FIRST.with(|end| end.0.set(Some(answer.clone())));
            let number = thread_number();
            LAST.with(|end| end.0.set(Some(answer)));
            number
        });
        let number = thread.join().unwrap();
        // One of the two was dropped after the number was given back, whatever the order is.
        let answers: Vec<_> = answered.iter().collect();
        assert_eq!(answers.len(), 2);
        assert!(
            answers.contains(&None) && answers.iter().all(|answer| answer.is_none() || *answer == number)
        );
    }
}
