//! Minimum rate at which clients must read their responses. A client that reads more slowly is disconnected,
//! and the memory of its response is freed.
//!
//! Each connection has a time budget, initially [`PATIENCE`], for blocked writes. The time for which a write has
//! blocked is subtracted from the budget. Each sent octet adds the time that it takes at [`LEAST_RATE`]. A client that
//! reads at this rate is therefore never disconnected, and a client that does not read is disconnected after
//! [`PATIENCE`]. Connections with streaming responses are exempt, because their queues are bounded and their number is
//! limited (`quota`).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Time for which the writes of an API connection may block, in addition to the time that the sent octets take at
/// [`LEAST_RATE`].
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum rate at which a client must read a response, in octets per second.
pub(crate) const LEAST_RATE: u32 = 64 << 10;

/// An API connection whose client must read at [`LEAST_RATE`] or faster.
pub(crate) struct Paced<S> {
    stream: S,
    /// Remaining time budget of the connection: the time for which its writes may still be blocked.
    left: Duration,
    /// Time at which the current write began to block. `None` means that no write is blocked.
    since: Option<Instant>,
    /// Timer that expires when the time budget for blocked writes is used up.
    timer: Pin<Box<Sleep>>,
    exempt: Arc<AtomicBool>,
}

impl<S> Paced<S> {
    /// Wraps a connection. While the flag `exempt` is set, the client may read at any rate.
    pub fn new(stream: S, exempt: Arc<AtomicBool>) -> Paced<S> {
        Paced { stream, left: PATIENCE, since: None, timer: Box::pin(sleep(PATIENCE)), exempt }
    }

    /// Updates the connection's time budget for blocked writes after an attempt to write or flush, and returns the
    /// outcome of the attempt. Returns a timeout error if the budget is used up.
    fn account<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
        octets: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if self.exempt.load(Ordering::Relaxed) {
            self.since = None;
            return outcome;
        }
        let done = match outcome {
            Poll::Ready(done) => done,
            Poll::Pending => {
                if self.since.is_none() {
                    let now = Instant::now();
                    self.since = Some(now);
                    self.timer.as_mut().reset(now + self.left);
                }
                let late = || io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly");
                return self.timer.as_mut().poll(cx).map(|()| Err(late()));
            }
        };
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        let sent = done.as_ref().map_or(0, |done| u32::try_from(octets(done)).unwrap_or(u32::MAX));
        self.left = (self.left + Duration::from_secs(1) * sent / LEAST_RATE).min(PATIENCE);
        Poll::Ready(done)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, from);
        self.account(cx, outcome, |sent| *sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, from);
        self.account(cx, outcome, |sent| *sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.account(cx, outcome, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.account(cx, outcome, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const RATE: usize = LEAST_RATE as usize;

    fn pair() -> (Paced<DuplexStream>, DuplexStream, Arc<AtomicBool>) {
        let (ours, theirs) = duplex(RATE);
        let exempt = Arc::new(AtomicBool::new(false));
        (Paced::new(ours, exempt.clone()), theirs, exempt)
    }

    /// Reads `rate` octets each second until the connection ends, and returns the total number of octets
    /// read.
    async fn read_at(mut theirs: DuplexStream, rate: usize) -> usize {
        let (mut count, mut buffer) = (0, vec![0; rate]);
        while let Ok(read @ 1..) = theirs.read_exact(&mut buffer).await {
            count += read;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off_and_a_steady_one_is_not() {
        let (mut ours, theirs, _) = pair();
        let begin = Instant::now();
        let error = ours.write_all(&vec![0; 2 * RATE]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begin.elapsed().as_secs(), PATIENCE.as_secs());
        drop(theirs);

        let (mut ours, theirs, _) = pair();
        let reading = tokio::spawn(read_at(theirs, RATE));
        ours.write_all(&vec![0; 100 * RATE]).await.unwrap();
        drop(ours);
        assert_eq!(reading.await.unwrap(), 100 * RATE);
    }

    /// Checks that a client that reads at half of the minimum rate is disconnected after about twice `PATIENCE`.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_too_slowly_is_cut_off() {
        let (mut ours, theirs, _) = pair();
        let reading = tokio::spawn(read_at(theirs, RATE / 2));
        let begin = Instant::now();
        let error = ours.write_all(&vec![0; 100 * RATE]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let seconds = begin.elapsed().as_secs();
        assert!((15..=25).contains(&seconds), "{seconds}");
        drop(ours);
        assert!(reading.await.unwrap() < 20 * RATE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_view_may_pause() {
        let (mut ours, mut theirs, exempt) = pair();
        exempt.store(true, Ordering::Relaxed);
        let writing = tokio::spawn(async move { ours.write_all(&vec![0; 2 * RATE]).await });
        tokio::time::sleep(PATIENCE * 10).await;
        theirs.read_exact(&mut vec![0; 2 * RATE]).await.unwrap();
        writing.await.unwrap().unwrap();
    }
}
