//! Locks mutexes of the data plane's state.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic of another thread that held the mutex is ignored.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
