//! Test runs of XDP programs (`BPF_PROG_TEST_RUN`). A test run processes one frame without transmitting it. A
//! live test run also transmits frames.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys as ffi;

use super::{check, size32};

/// Parameters of a test run of an XDP program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunRequest<'a> {
    pub frame: &'a [u8],
    /// Device index (in the calling thread's namespace) and receive queue on which the frame seems to arrive. `None`
    /// means queue 0 of a device without a name.
    pub ingress: Option<(u32, u32)>,
    pub repeat: i32,
    /// Number of frames that a live test run transmits in one batch. `None` for a test run that transmits no frames.
    pub live_batch: Option<u32>,
}

/// Result of a test run of an XDP program. The frame is empty for a live test run, which transmits its frames.
#[derive(Debug, Clone)]
pub(crate) struct RunResult {
    pub verdict: u32,
    pub frame: Vec<u8>,
    pub nanoseconds: u32,
}

/// Headroom in front of a frame, in bytes, into which a program may prepend data.
const HEADROOM: usize = 256;

pub(crate) fn run(program: BorrowedFd<'_>, request: RunRequest<'_>) -> io::Result<RunResult> {
    let too_long = |_| io::Error::from_raw_os_error(libc::EMSGSIZE);
    let length = u32::try_from(request.frame.len()).map_err(too_long)?;
    let mut context = ffi::xdp_md { data_end: length, ..Default::default() };
    if let Some((ifindex, queue)) = request.ingress {
        context.ingress_ifindex = ifindex;
        context.rx_queue_index = queue;
    }
    let mut out = vec![0_u8; if request.live_batch.is_some() { 0 } else { request.frame.len() + HEADROOM }];
    // SAFETY: the struct holds integers and pointers. All-zero means "unset".
    let mut options: ffi::bpf_test_run_opts = unsafe { zeroed() };
    options.sz = size_of::<ffi::bpf_test_run_opts>() as ffi::size_t;
    options.data_in = request.frame.as_ptr().cast();
    options.data_size_in = length;
    options.ctx_in = (&raw const context).cast();
    options.ctx_size_in = size32::<ffi::xdp_md>();
    options.repeat = request.repeat;
    match request.live_batch {
        Some(batch) => {
            options.flags = ffi::BPF_F_TEST_XDP_LIVE_FRAMES;
            options.batch_size = batch;
        }
        None => {
            options.data_out = out.as_mut_ptr().cast();
            options.data_size_out = u32::try_from(out.len()).map_err(too_long)?;
        }
    }
    // SAFETY: every pointer in `options` has its length beside it and outlives the call. The kernel reads the
    // frame and the context and writes at most `data_size_out` bytes.
    check(unsafe { ffi::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    if request.live_batch.is_none() {
        out.truncate(usize::try_from(options.data_size_out).unwrap_or(0));
    }
    Ok(RunResult { verdict: options.retval, frame: out, nanoseconds: options.duration })
}
