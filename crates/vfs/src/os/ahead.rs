//! A thread that makes the next [window](super::window) of a growing file ready while its writer fills the one before.
//!
//! Zeros and what is written must not meet: whoever writes behind the end of his window takes back what he asked for first.

use super::window::{LEN, Window};
use ironstone_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ironstone_base::sync::thread::{Builder, JoinHandle};
use ironstone_base::sync::{Arc, Condvar, Mutex};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::mpsc::{Sender, channel};

/// The ends of so many files are mapped at once at most, each in up to two windows: the logs of hundreds of databases are not.
pub(super) const MOST_MAPPED: usize = 64;

/// What all files of a file system share.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The thread. It is started when it is first needed, and ends with this.
    helper: Mutex<Option<Helper>>,
    /// How many files have [leave](Leave) to be mapped.
    mapped: AtomicUsize,
}

#[derive(Debug)]
struct Helper {
    requests: Sender<Arc<Request>>,
    handle: JoinHandle<()>,
}

impl Ahead {
    /// Leave to map the end of a file, unless [`MOST_MAPPED`] have it.
    pub(super) fn leave(self: &Arc<Self>) -> Option<Leave> {
        let one_more = |count| (count < MOST_MAPPED).then_some(count + 1);
        let given = self.mapped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        given.is_ok().then(|| Leave(self.clone()))
    }

    /// Asks for the window of `fd` from `at` on, and for `past` to be unmapped. `None` if there is no thread.
    pub(super) fn ask(&self, fd: &Arc<OwnedFd>, at: u64, past: Option<Window>) -> Option<NextWindow> {
        let mut helper = self.helper.lock();
        if helper.is_none() {
            *helper = Helper::start();
        }
        let work = Work { fd: fd.clone(), at, past };
        let request = Arc::new(Request {
            state: Mutex::new(State::Asked(work)),
            is_wanted: AtomicBool::new(false),
            done: Condvar::new(),
        });
        helper.as_ref()?.requests.send(request.clone()).ok()?;
        Some(NextWindow(request))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(Helper { requests, handle }) = self.helper.get_mut().take() {
            drop(requests);
            let _ = handle.join(); // It has nothing to say.
        }
    }
}

impl Helper {
    fn start() -> Option<Self> {
        let (requests, asked) = channel::<Arc<Request>>();
        let work = move || asked.iter().for_each(|request| request.work());
        let handle = Builder::new().name("ironstone:log".to_owned()).spawn(work).ok()?;
        Some(Self { requests, handle })
    }
}

/// That the end of a file may be mapped.
pub(super) struct Leave(Arc<Ahead>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.mapped.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A window that was asked for. Dropping it takes it back.
pub(super) struct NextWindow(Arc<Request>);

struct Request {
    state: Mutex<State>,
    /// Whether the window is waited for, as far as it is.
    is_wanted: AtomicBool,
    done: Condvar,
}

enum State {
    Asked(Work),
    Begun,
    Done(Result<Window, Errno>),
    TakenBack,
}

struct Work {
    fd: Arc<OwnedFd>,
    at: u64,
    past: Option<Window>,
}

impl Request {
    fn work(&self) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Begun) {
            State::Asked(Work { fd, at, past }) => {
                drop(state);
                drop(past); // First, so that no more than two are in memory.
                let window = self.make_ready(&fd, at);
                drop(fd); // Whoever takes the window may be the only one that has the file open.
                *self.state.lock() = State::Done(window);
                self.done.notify_all();
            }
            taken_back => *state = taken_back,
        }
    }

    fn make_ready(&self, fd: &OwnedFd, at: u64) -> Result<Window, Errno> {
        let mut window = Window::new(fd, at, LEN)?;
        while window.ready_end() < window.end() && !self.is_wanted.load(Ordering::Relaxed) {
            window.make_more_ready(fd)?;
        }
        Ok(window)
    }
}

impl NextWindow {
    /// The window, as far as it is ready; `None` if nobody had begun with it. Nothing more is done to the file.
    pub(super) fn take(&self) -> Option<Result<Window, Errno>> {
        self.0.is_wanted.store(true, Ordering::Relaxed);
        let mut state = self.0.state.lock();
        while matches!(*state, State::Begun) {
            self.0.done.wait(&mut state);
        }
        match std::mem::replace(&mut *state, State::TakenBack) {
            State::Done(window) => Some(window),
            _ => None,
        }
    }
}

impl Drop for NextWindow {
    fn drop(&mut self) {
        self.take(); // Whoever let go of it may write there.
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use ironstone_base::sync::thread::yield_now;
    use rustix::fs::{Mode, OFlags, fstat, open};
    use rustix::io::{pread, pwrite};

    /// Windows are taken, or dropped, before the thread has begun with them, while it writes zeros, and after that.
    #[test]
    fn zeros_never_come_after_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE;
        let fd = Arc::new(open(dir.path().join("file"), flags, Mode::from_raw_mode(0o644)).unwrap());
        if Window::new(&fd, 0, LEN).is_err() {
            println!("SKIP: nothing is mapped on this file system");
            return;
        }
        let ahead = Ahead::default();
        let data = vec![0xff; LEN as usize];
        let (mut past, mut in_part, mut whole, mut not_begun) = (None, 0, 0, 0);
        for round in 0..60 {
            let at = round * LEN;
            let next = ahead.ask(&fd, at, past.take()).unwrap();
            let wait_for = [0, 1, LEN / 2, LEN][round as usize % 4];
            while (fstat(&*fd).unwrap().st_size as u64) < at + wait_for {
                yield_now();
            }
            if round % 3 == 0 {
                drop(next);
            } else {
                match next.take() {
                    Some(window) => {
                        let window = window.unwrap();
                        assert!(window.ready_end() >= at && window.ready_end() <= window.end());
                        *(if window.ready_end() == window.end() { &mut whole } else { &mut in_part }) += 1;
                        past = Some(window);
                    }
                    None => not_begun += 1,
                }
            }
            assert_eq!(pwrite(&*fd, &data, at).unwrap(), data.len());
        }
        drop(ahead); // Whatever it is at is done then.
        let mut found = vec![0; LEN as usize];
        for round in 0..60 {
            assert_eq!(pread(&*fd, &mut found, round * LEN).unwrap(), found.len());
            assert!(found == data, "window {round}");
        }
        println!("{whole} windows, {in_part} in part, {not_begun} not begun");
    }
}
