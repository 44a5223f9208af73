//! Handles, insertions and evictions of one entry.

use ironstone_cache::{Cache, CacheKey, CacheOptions, Priority};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// In words. A cache is made on the stack, and loom's are small.
const STACK: usize = 1 << 16;

fn start(work: impl FnOnce() + Send + 'static) -> loom::thread::JoinHandle<()> {
    loom::thread::Builder::new().stack_size(STACK).spawn(work).expect("loom starts a thread")
}

/// Runs `scene` on a thread that has room for it.
fn play(scene: impl FnOnce() + Send + 'static) {
    start(scene).join().expect("it does not panic");
}

const KEY: CacheKey = CacheKey(7, 1);
const OTHER: CacheKey = CacheKey(7, 2);

/// A value that counts how many of its kind are alive.
struct Value {
    text: &'static str,
    alive: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        let before = self.alive.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a value was dropped twice");
    }
}

struct Scene {
    cache: Arc<Cache<Value>>,
    alive: Arc<AtomicUsize>,
}

impl Clone for Scene {
    fn clone(&self) -> Self {
        Self { cache: Arc::clone(&self.cache), alive: Arc::clone(&self.alive) }
    }
}

impl Scene {
    fn new(entries: usize) -> Self {
        let capacity = entries * (Cache::<Value>::CHARGE_PER_ENTRY + 100);
        let options = CacheOptions { capacity, num_shard_bits: 0, ..CacheOptions::default() };
        Self { cache: Cache::new(options), alive: Arc::default() }
    }
    fn insert(&self, key: CacheKey, text: &'static str) {
        self.alive.fetch_add(1, Ordering::SeqCst);
        let value = Value { text, alive: Arc::clone(&self.alive) };
        let handle = self.cache.insert(key, value, 100, Priority::Low).expect("the limit is not strict");
        assert_eq!(handle.text, text);
    }
    /// Looks for `key`; its value must be one of `texts`.
    fn look(&self, key: CacheKey, texts: &[&str]) {
        if let Some(handle) = self.cache.get(&key) {
            assert!(texts.contains(&handle.text), "{} under another key", handle.text);
        }
    }
    fn spawn(&self, work: impl FnOnce(&Self) + Send + 'static) -> loom::thread::JoinHandle<()> {
        let scene = self.clone();
        start(move || work(&scene))
    }
    /// Nothing is left when everybody has let go.
    fn end(self) {
        let alive = Arc::clone(&self.alive);
        drop(self);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "a value was never dropped");
    }
}

/// One thread inserts and erases, another one looks.
pub fn insert_get_erase() {
    play(|| {
        let scene = Scene::new(4);
        let writer = scene.spawn(|scene| {
            scene.insert(KEY, "one");
            scene.cache.erase(&KEY);
        });
        scene.look(KEY, &["one"]);
        scene.look(KEY, &["one"]);
        writer.join().expect("it does not panic");
        scene.end();
    });
}

/// There is room for one: an entry goes, or stays for whoever holds it, and its node is used again.
pub fn evict_pinned() {
    play(|| {
        let scene = Scene::new(1);
        scene.insert(KEY, "one");
        let writer = scene.spawn(|scene| scene.insert(OTHER, "other"));
        scene.look(KEY, &["one"]);
        scene.look(OTHER, &["other"]);
        writer.join().expect("it does not panic");
        scene.end();
    });
}

/// Two handles on an entry that is erased meanwhile: the last one frees it.
pub fn last_handle() {
    play(|| {
        let scene = Scene::new(4);
        scene.insert(KEY, "one");
        let reader = scene.spawn(|scene| scene.look(KEY, &["one"]));
        let eraser = scene.spawn(|scene| scene.cache.erase(&KEY));
        scene.look(KEY, &["one"]);
        reader.join().expect("it does not panic");
        eraser.join().expect("it does not panic");
        scene.end();
    });
}
