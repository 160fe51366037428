//! Conversion of libbpf's messages to text. A message may contain any bytes, because libbpf quotes names from
//! objects of any origin.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use libbpf_rs::libbpf_sys as ffi;

type Said = unsafe extern "C" fn(ffi::libbpf_print_level, *const c_char, *mut c_void) -> c_int;

static LISTENER: OnceLock<fn(&str)> = OnceLock::new();

/// Makes libbpf call `listener` with its messages, except debug messages. `listener` is called on the thread that
/// called libbpf. A second call of this function has no effect.
pub(crate) fn listen(listener: fn(&str)) {
    LISTENER.get_or_init(|| {
        // SAFETY: both types are pointers to functions of the C calling convention with equal arguments. The
        // last argument is a pointer on every machine, whatever type the bindings give it.
        let said = unsafe { transmute::<Option<Said>, ffi::libbpf_print_fn_t>(Some(said)) };
        // SAFETY: the function lives as long as the process.
        unsafe { ffi::libbpf_set_print(said) };
        listener
    });
}

/// Passes a message of libbpf to the listener. libbpf calls this function for each message.
///
/// # Safety
/// `format` and `arguments` must be valid arguments of `vprintf`.
unsafe extern "C" fn said(
    level: ffi::libbpf_print_level,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    if level != ffi::LIBBPF_DEBUG
        && let Some(listener) = LISTENER.get()
        // SAFETY: the caller guarantees a format and arguments of a `vprintf`.
        && let Ok(bytes) = unsafe { vsprintf::vsprintf_raw(format, arguments) }
    {
        listener(&String::from_utf8_lossy(&bytes));
    }
    0
}
