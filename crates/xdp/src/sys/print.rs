//! What libbpf says, as text whatever its bytes are: it quotes names of objects that anybody may have made.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use libbpf_rs::libbpf_sys as ffi;

type Said = unsafe extern "C" fn(ffi::libbpf_print_level, *const c_char, *mut c_void) -> c_int;

static LISTENER: OnceLock<fn(&str)> = OnceLock::new();

/// Has libbpf call `listener` on the thread that called it, with what is no mere debugging; the first one stays.
pub(crate) fn listen(listener: fn(&str)) {
    LISTENER.get_or_init(|| {
        // SAFETY: both are pointers to functions of the C calling convention with the same arguments; the last one is a
        // pointer on every machine, whatever type the bindings give it.
        let said = unsafe { transmute::<Option<Said>, ffi::libbpf_print_fn_t>(Some(said)) };
        // SAFETY: the function lives as long as the process.
        unsafe { ffi::libbpf_set_print(said) };
        listener
    });
}

/// # Safety
/// `format` and `arguments` are those of a `vprintf`.
unsafe extern "C" fn said(
    level: ffi::libbpf_print_level,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    if level != ffi::LIBBPF_DEBUG
        && let Some(listener) = LISTENER.get()
        // SAFETY: as the caller promises.
        && let Ok(bytes) = unsafe { vsprintf::vsprintf_raw(format, arguments) }
    {
        listener(&String::from_utf8_lossy(&bytes));
    }
    0
}
