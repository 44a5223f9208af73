//! Of writers that wait for a sync, one does it for all that came before it began, and what they would do next as well.

use ironstone_base::sync::{Arc, Condvar, Mutex};

/// Who syncs the log now, and who waits for that. Each waiter sleeps by itself and is woken once: when its write is done,
/// or to sync for those that came after the last sync began.
///
/// `D` is what a waiter leaves to whoever syncs for it, `R` what it gets back.
pub(crate) struct SyncGroup<D, R> {
    queue: Mutex<Queue<D, R>>,
}

struct Queue<D, R> {
    /// Somebody syncs.
    led: bool,
    /// Offsets of the log up to here are durable.
    synced: u64,
    waiting: Vec<Waiting<D, R>>,
}

struct Waiting<D, R> {
    end: u64,
    deferred: Option<D>,
    waiter: Arc<Waiter<R>>,
}

struct Waiter<R> {
    answer: Mutex<Option<Answer<R>>>,
    answered: Condvar,
}

enum Answer<R> {
    Leads,
    Durable,
    Done(R),
}

/// What comes of waiting for a sync.
pub(crate) enum Entered<'a, D, R> {
    /// The log is durable as far as was asked.
    Durable,
    /// It is, and what was deferred was done.
    Done(R),
    /// It is this one's turn to sync.
    Leads(Lead<'a, D, R>),
}

/// The turn to sync, which goes on to the next one however it ends.
pub(crate) struct Lead<'a, D, R>(&'a SyncGroup<D, R>);

/// Those whom a sync covered, in the order of the log. They are told when this is dropped, if not before.
pub(crate) struct Covered<D, R>(std::vec::IntoIter<Waiting<D, R>>);

impl<D, R> Default for SyncGroup<D, R> {
    fn default() -> Self {
        Self { queue: Mutex::new(Queue { led: false, synced: 0, waiting: Vec::new() }) }
    }
}

impl<D, R> SyncGroup<D, R> {
    /// Waits until the log is durable up to `end`, or until it is this one's turn to sync it. Before it sleeps it leaves
    /// `deferred`, if that is anything.
    pub(crate) fn enter(&self, end: u64, deferred: impl FnOnce() -> Option<D>) -> Entered<'_, D, R> {
        let mut queue = self.queue.lock();
        if queue.synced >= end {
            return Entered::Durable;
        }
        if !queue.led {
            queue.led = true;
            return Entered::Leads(Lead(self));
        }
        let waiter = Arc::new(Waiter { answer: Mutex::new(None), answered: Condvar::new() });
        queue.waiting.push(Waiting { end, deferred: deferred(), waiter: Arc::clone(&waiter) });
        drop(queue);
        match waiter.wait() {
            Answer::Leads => Entered::Leads(Lead(self)),
            Answer::Durable => Entered::Durable,
            Answer::Done(result) => Entered::Done(result),
        }
    }

    /// Ends a turn after which the log is durable up to `synced`, and wakes the next one. Answers those who are covered.
    fn pass_on(&self, synced: u64) -> Vec<Waiting<D, R>> {
        let mut queue = self.queue.lock();
        queue.synced = queue.synced.max(synced);
        let synced = queue.synced;
        let (mut covered, mut rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut queue.waiting).into_iter().partition(|waiting| waiting.end <= synced);
        queue.led = !rest.is_empty();
        let next = queue.led.then(|| rest.remove(0));
        queue.waiting = rest;
        drop(queue);
        if let Some(next) = next {
            next.waiter.wake(Answer::Leads);
        }
        covered.sort_unstable_by_key(|waiting| waiting.end);
        covered
    }
}

impl<R> Waiter<R> {
    fn wait(&self) -> Answer<R> {
        let mut answer = self.answer.lock();
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            self.answered.wait(&mut answer);
        }
    }
    fn wake(&self, answer: Answer<R>) {
        *self.answer.lock() = Some(answer);
        self.answered.notify_one();
    }
}

impl<D, R> Lead<'_, D, R> {
    /// Ends the turn: the log is durable up to `synced`, for whoever waits for that. 0: nobody may take that for granted.
    pub(crate) fn end(self, synced: u64) -> Covered<D, R> {
        let group = self.0;
        std::mem::forget(self);
        Covered(group.pass_on(synced).into_iter())
    }
}

impl<D, R> Drop for Lead<'_, D, R> {
    fn drop(&mut self) {
        drop(Covered(self.0.pass_on(0).into_iter()));
    }
}

impl<D, R> Covered<D, R> {
    /// Does what they have deferred, one after the other.
    pub(crate) fn finish(mut self, mut act: impl FnMut(D) -> R) {
        for Waiting { deferred, waiter, .. } in self.0.by_ref() {
            waiter.wake(deferred.map_or(Answer::Durable, |deferred| Answer::Done(act(deferred))));
        }
    }
}

impl<D, R> Drop for Covered<D, R> {
    fn drop(&mut self) {
        self.0.by_ref().for_each(|waiting| waiting.waiter.wake(Answer::Durable));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::sync::thread;

    type Group = SyncGroup<u64, u64>;

    fn leads(group: &Group, end: u64) -> Lead<'_, u64, u64> {
        match group.enter(end, || None) {
            Entered::Leads(lead) => lead,
            _ => unreachable!("nobody leads"),
        }
    }

    fn wait_for(group: &Group, count: usize) {
        while group.queue.lock().waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn one_syncs_and_finishes_for_those_who_came_before_it_began() {
        let group = Arc::new(Group::default());
        let lead = leads(&group, 10);
        let enter = |end: u64, deferred: Option<u64>| {
            let group = Arc::clone(&group);
            thread::spawn_named("writer", move || match group.enter(end, || deferred) {
                Entered::Durable => "durable".to_owned(),
                Entered::Done(result) => format!("done {result}"),
                Entered::Leads(lead) => {
                    let mut finished = Vec::new();
                    lead.end(end).finish(|deferred| {
                        finished.push(deferred);
                        0
                    });
                    format!("led {finished:?}")
                }
            })
        };
        let mut waiters = Vec::new();
        for (count, (end, deferred)) in
            [(30, Some(3)), (40, Some(4)), (25, Some(2)), (20, None), (35, Some(5))].into_iter().enumerate()
        {
            waiters.push(enter(end, deferred));
            wait_for(&group, count + 1);
        }
        let mut order = Vec::new();
        lead.end(30).finish(|deferred| {
            order.push(deferred);
            100 + deferred
        });
        assert_eq!(order, [2, 3], "in the order of the log");
        let results: Vec<String> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_eq!(results, ["done 103", "led [5]", "done 102", "durable", "done 0"]);
        assert!(matches!(group.enter(40, || None), Entered::Durable));
        assert!(!group.queue.lock().led);
    }

    #[test]
    fn a_turn_that_fails_is_the_next_ones() {
        let group = Arc::new(Group::default());
        let lead = leads(&group, 10);
        let next = {
            let group = Arc::clone(&group);
            thread::spawn_named("writer", move || match group.enter(10, || Some(1)) {
                Entered::Leads(lead) => {
                    lead.end(0).finish(|_| unreachable!("0 is for nobody"));
                }
                _ => unreachable!("nothing was synced"),
            })
        };
        wait_for(&group, 1);
        drop(lead);
        next.join().unwrap();
        leads(&group, 10).end(10).finish(|_| unreachable!("nobody waits"));
        assert!(matches!(group.enter(10, || None), Entered::Durable));
    }
}
