//! Runs on all cores. The outcome doesn't depend on which thread does what: results, and the error that is returned,
//! are in the order of the runs' indices.

use crate::progress::{Progress, Unit};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

/// The results of `work` for 0 up to `count`, in this order. Runs as many threads as `threads`, or as there are
/// cores.
///
/// # Errors
/// The error with the least index. No run begins after an error.
pub fn in_parallel<T: Send, E: Send>(
    count: usize,
    threads: Option<usize>,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = threads.unwrap_or_else(cores).clamp(1, count.max(1));
    let next = AtomicUsize::new(0);
    let progress = Progress::new(count as f64, Unit::Runs);
    progress.show(0.0);
    let progress = Mutex::new((0_usize, progress));
    let worker = || {
        let mut mine = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return mine;
            }
            let result = work(index);
            if result.is_err() {
                // All runs with a smaller index have begun, so the results will contain the first error.
                next.fetch_max(count, Ordering::Relaxed);
            }
            mine.push((index, result));
            let (done, progress) = &mut *progress.lock().unwrap_or_else(PoisonError::into_inner);
            *done += 1;
            progress.show(*done as f64);
        }
    };
    let mut results: Vec<(usize, Result<T, E>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let join = |worker: ScopedJoinHandle<'_, Vec<(usize, Result<T, E>)>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_with_any_number_of_threads() {
        for threads in [None, Some(1), Some(3), Some(100)] {
            let squares = in_parallel(50, threads, |index| Ok::<_, ()>(index * index)).unwrap();
            assert!(squares.iter().enumerate().all(|(index, square)| *square == index * index));
            assert_eq!(squares.len(), 50);
        }
        assert_eq!(in_parallel(0, None, Err::<(), usize>), Ok(Vec::new()));
    }

    #[test]
    fn the_first_error_counts_and_nothing_is_begun_after_it() {
        let begun = AtomicUsize::new(0);
        for threads in 1..4 {
            begun.store(0, Ordering::Relaxed);
            let all = in_parallel(100_000, Some(threads), |index| {
                begun.fetch_add(1, Ordering::Relaxed);
                if index < 5 { Ok(()) } else { Err(index) }
            });
            assert_eq!(all, Err(5));
            assert!(begun.load(Ordering::Relaxed) < 100_000);
        }
    }
}
