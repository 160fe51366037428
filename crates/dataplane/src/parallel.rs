//! Parallel work on several ports while the daemon starts.
//!
//! Most of the time to open a port is spent in the kernel, which verifies a program, allocates tables and waits for RCU
//! grace periods. With several threads, these waits overlap and more CPUs are used. Once workers forward traffic, ports
//! are opened one after another, because more threads would take CPU time from the workers.

use std::sync::{Mutex, PoisonError};

/// Number of threads that open ports while the daemon starts. More threads do not help, because attaching
/// programs and binding sockets hold the kernel's RTNL mutex.
const THREADS: usize = 4;

/// Calls `work` with each item and returns the results in the order of the items. If `starting` is
/// true, several threads process the items in parallel. Otherwise the calling thread processes all
/// items. Each thread starts in the caller's network namespace.
pub fn each<T: Send, R: Send>(starting: bool, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = if starting { items.len().min(THREADS) } else { 1 };
    if threads < 2 {
        return items.into_iter().map(work).collect();
    }
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let jobs = Mutex::new(items.into_iter().zip(results.iter_mut()));
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some((item, result)) = next() {
            *result = Some(work(item));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If a thread cannot be created, the other threads do its part.
            let _ = std::thread::Builder::new().name("opener".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        for (count, starting) in
            [0_u64, 1, 2, 3, 100].into_iter().flat_map(|count| [(count, true), (count, false)])
        {
            let results = each(starting, (0..count).collect(), |item| {
                std::thread::sleep(Duration::from_micros((count - item) * 10));
                item * 2
            });
            assert_eq!(results, (0..count).map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn several_items_are_worked_on_at_once_while_the_daemon_starts() {
        // Each call waits until the other call has begun.
        let both = std::sync::Barrier::new(2);
        each(true, vec![(), ()], |()| both.wait());
    }
}
