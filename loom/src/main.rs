//! Runs small scenes over the engine's lock-free structures in every schedule (with a bounded number of
//! preemptions) and with every value that a load may see in the memory model of C11.
//!
//! ```text
//! loom [--preemptions N] [NAME ...]     the scenes of these names, or all
//! ```
//! The code is the engine's own. [`plain`](ironstone_base::sync::plain) tells loom where it reads and writes
//! memory that is not atomic.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // Around the scenes there is real time.

mod block_cache;
mod memtable;
mod publishing;
mod syncing;
mod views;

use loom::model::Builder;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A scene, with how many preemptions it is tried if nothing else is asked for, and what it does.
type Scene = (&'static str, usize, fn());

/// The short ones first.
const SCENES: &[Scene] = &[
    ("publish", 3, publishing::writers_and_a_reader),
    ("publish-wait", 3, publishing::a_flush_waits),
    ("sync-group", 4, syncing::writers_that_defer),
    ("sync-group-three", 3, syncing::one_does_not_defer),
    ("view-flush", 3, views::a_flush_drops_old_versions),
    ("view-switch", 3, views::an_acknowledged_write_is_seen),
    ("view-batch", 3, views::a_batch_over_two_families),
    ("view-release", 3, views::files_go_with_their_last_view),
    ("skip-list-neighbours", 2, memtable::skip_list_neighbours),
    ("overwritten-value", 2, memtable::overwritten_value),
    ("radix-tree-root-read", 2, memtable::radix_tree_root_read),
    ("radix-tree-joint-read", 2, memtable::radix_tree_joint_read),
    ("radix-tree-growth-read", 2, memtable::radix_tree_growth_read),
    ("cache-insert-get-erase", 2, block_cache::insert_get_erase),
    ("cache-evict-pinned", 2, block_cache::evict_pinned),
    ("radix-tree-growth", 2, memtable::radix_tree_growth),
    ("cache-last-handle", 2, block_cache::last_handle),
    ("radix-tree-joint", 2, memtable::radix_tree_joint),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut preemptions, mut names) = (None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--preemptions" => preemptions = arguments.next().and_then(|count| count.parse().ok()),
            _ => names.push(argument),
        }
    }
    if let Some(unknown) = names.iter().find(|name| SCENES.iter().all(|(known, ..)| known != name)) {
        println!("there is no scene {unknown}");
        return ExitCode::FAILURE;
    }
    let start = Instant::now();
    let mut all = 0;
    for &(name, usual, scene) in SCENES {
        if !names.is_empty() && names.iter().all(|wanted| wanted != name) {
            continue;
        }
        let began = Instant::now();
        let bound = preemptions.unwrap_or(usual);
        let runs = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&runs);
        let mut builder = Builder::new();
        builder.preemption_bound = Some(bound);
        builder.max_branches = 20_000;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                ironstone_base::sync::model(scene);
            });
        }));
        if outcome.is_err() {
            println!("{name}: FAILED in execution {}", runs.load(Ordering::Relaxed));
            return ExitCode::FAILURE;
        }
        let runs = runs.load(Ordering::Relaxed);
        all += runs;
        let seconds = began.elapsed().as_secs_f64();
        println!("{name}: {runs} executions with up to {bound} preemptions in {seconds:.1} s");
    }
    println!("{all} executions in {:.1} s; no failure", start.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}
