//! State that a forked child does not share with its parent.
//!
//! The child abandons the value of a [`PerProcess`] and makes its own. Nothing is freed: the memory is a copy-on-write
//! copy of the parent's.
#![allow(unsafe_code)]

use crate::generation::generation;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value of which each process has its own, made on first use. It is never dropped: at exit its memory goes away
/// with the process.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    /// The newest entry; null, or from `Box::into_raw` and never freed.
    current: AtomicPtr<Entry<T>>,
    make: fn(Option<&T>) -> T,
}

/// The value of one process.
#[derive(Debug)]
struct Entry<T: 'static> {
    generation: u64,
    value: OnceLock<T>,
    parent: Option<&'static Self>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// An empty cell. `make` is called once per process, with the copy of the value that the nearest parent has, if
    /// one has a value. Other threads may have held the locks of the copy during the fork, which are then never
    /// released.
    pub const fn new(make: fn(Option<&T>) -> T) -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// The value of this process. Threads that come while another thread makes it wait; a child that is forked
    /// meanwhile doesn't.
    pub fn get(&self) -> &T {
        let entry = self.entry();
        entry.value.get_or_init(|| (self.make)(entry.inherited()))
    }

    /// The entry of this process.
    fn entry(&self) -> &'static Entry<T> {
        let generation = generation();
        let mut seen = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: `current` is null or came from Box::into_raw below, and is never freed.
            let known: Option<&'static Entry<T>> = unsafe { seen.as_ref() };
            if let Some(entry) = known.filter(|entry| entry.generation == generation) {
                return entry;
            }
            let fresh = Box::into_raw(Box::new(Entry { generation, value: OnceLock::new(), parent: known }));
            match self.current.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => seen = fresh,
                Err(first) => {
                    // SAFETY: another thread stored its entry first; no other thread has seen this box.
                    drop(unsafe { Box::from_raw(fresh) });
                    seen = first;
                }
            }
        }
    }
}

impl<T> Entry<T> {
    /// The value of the nearest parent that has one. A parent has none if the fork came while the parent made it.
    fn inherited(&self) -> Option<&'static T> {
        let mut parents = std::iter::successors(self.parent, |entry| entry.parent);
        parents.find_map(|entry| entry.value.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::succeeds_in_child;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::thread;

    #[test]
    fn a_forked_child_starts_empty_even_while_the_lock_is_held() {
        static STATE: PerProcess<Mutex<Vec<u32>>> = PerProcess::new(|_| Mutex::default());
        let mut held = STATE.get().lock().unwrap();
        held.push(7);
        let child = || STATE.get().lock().is_ok_and(|list| list.is_empty());
        assert!(succeeds_in_child(child), "the child saw the parent's state");
        assert_eq!(*held, [7]);
    }

    #[test]
    fn a_value_is_made_once_however_many_threads_ask() {
        static MADE: AtomicU32 = AtomicU32::new(0);
        static STATE: PerProcess<u32> = PerProcess::new(|_| MADE.fetch_add(1, Ordering::Relaxed));
        thread::scope(|scope| {
            for thread in [(); 8].map(|()| scope.spawn(|| *STATE.get())) {
                assert_eq!(thread.join().unwrap(), 0);
            }
        });
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_child_that_is_forked_while_the_value_is_made_makes_its_own() {
        static IN_PARENT: AtomicBool = AtomicBool::new(true);
        static BEGUN: AtomicBool = AtomicBool::new(false);
        static GO_ON: AtomicBool = AtomicBool::new(false);
        static STATE: PerProcess<&str> = PerProcess::new(|_| {
            if !IN_PARENT.load(Ordering::SeqCst) {
                return "the child's";
            }
            BEGUN.store(true, Ordering::SeqCst);
            while !GO_ON.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            "the parent's"
        });
        let maker = thread::spawn(|| *STATE.get());
        while !BEGUN.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let succeeded = succeeds_in_child(|| {
            IN_PARENT.store(false, Ordering::SeqCst);
            *STATE.get() == "the child's"
        });
        GO_ON.store(true, Ordering::SeqCst);
        assert!(succeeded, "the child waited for a thread that it does not have");
        assert_eq!(maker.join().unwrap(), "the parent's");
    }

    #[test]
    fn a_value_can_be_made_from_the_nearest_parents() {
        static STATE: PerProcess<u32> = PerProcess::new(|parent| parent.map_or(1, |parent| parent + 1));
        assert_eq!(*STATE.get(), 1);
        assert!(succeeds_in_child(|| {
            // This child has no value of its own when it forks.
            succeeds_in_child(|| *STATE.get() == 2)
                && *STATE.get() == 2
                && succeeds_in_child(|| *STATE.get() == 3)
        }));
        assert_eq!(*STATE.get(), 1);
    }
}
