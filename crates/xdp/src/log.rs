//! Captures the messages of libbpf, which would otherwise go to standard error, for use in this crate's errors.
//! libbpf reports messages on the calling thread, so messages are captured separately for each thread.

use std::cell::RefCell;

use crate::sys;

thread_local! {
    static CAPTURE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `call`, and returns its result with the messages that libbpf printed on this thread during the call.
pub(crate) fn captured<T>(call: impl FnOnce() -> T) -> (T, String) {
    sys::listen(keep);
    let outer = CAPTURE.replace(Some(String::new()));
    let result = call();
    let said = CAPTURE.replace(outer).unwrap_or_default();
    (result, said.trim().to_owned())
}

fn keep(message: &str) {
    CAPTURE.with_borrow_mut(|capture| {
        if let Some(text) = capture {
            text.push_str(message);
        }
    });
}

/// Returns the driver's error message, which libbpf printed during an attach over netlink. Returns `None` if the output
/// of libbpf contains no such message.
pub(crate) fn kernel_message(said: &str) -> Option<&str> {
    let (_, message) = said.split_once("Kernel error message: ")?;
    message.lines().next().map(str::trim).filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_words_are_found_in_the_output() {
        let said = "libbpf: Kernel error message: Peer MTU is too large to set XDP\n";
        assert_eq!(kernel_message(said), Some("Peer MTU is too large to set XDP"));
        assert_eq!(kernel_message("libbpf: something else"), None);
    }

    #[test]
    fn captures_nest_and_belong_to_one_thread() {
        let ((), outer) = captured(|| {
            keep("before\n");
            let ((), inner) = captured(|| keep("inside\n"));
            assert_eq!(inner, "inside");
            std::thread::spawn(|| keep("elsewhere\n")).join().unwrap();
        });
        assert_eq!(outer, "before");
    }
}
