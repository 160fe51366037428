//! Unix socket over which the two processes of a hand-over exchange messages. A message is JSON text
//! preceded by its length, with the file descriptors that belong to it.
//!
//! Neither side holds the text of a long message in memory. The sender serialises such a message twice, first
//! to count its bytes and then piece by piece into the socket. The receiver decodes the pieces as they arrive.

use std::io::{BufReader, BufWriter, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::HandoverError;

/// Number of file descriptors that one call of sendmsg(2) sends, together with one byte. The kernel accepts
/// at most 253.
const TOGETHER: usize = 64;
/// Maximum length in bytes of the JSON text of a hand-over message.
pub const LIMIT: usize = 2 << 30;
/// Maximum number of file descriptors that belong to one hand-over message.
const DESCRIPTORS: usize = 65_536;
/// Maximum length in bytes of a short message. A longer message is sent and decoded piece by piece.
const LONG: usize = 16 << 20;
/// Length in bytes of the pieces in which a long message is sent.
const PIECE: usize = 1 << 20;
/// Length in bytes of the header of a hand-over message: the length of the text, and the number of file
/// descriptors.
const HEAD: usize = 16;

/// This process's side of the connection between predecessor and successor.
#[derive(Debug)]
pub struct Link {
    socket: UnixStream,
    /// Time limit for the arrival of each message from the other process.
    patience: Option<Duration>,
    /// Deadline by which all messages of the hand-over must have been sent and received.
    until: Option<Instant>,
}

impl Link {
    /// Creates a socket pair for a hand-over. Returns this process's side of the connection, and the socket for
    /// the successor.
    ///
    /// # Errors
    /// Returns an error if descriptors cannot be allocated.
    pub fn pair() -> std::io::Result<(Link, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Link::over(ours), theirs))
    }

    /// Creates the successor's side of the connection. `socket` is the socket that the successor got from the
    /// predecessor.
    pub fn over(socket: UnixStream) -> Link {
        Link { socket, patience: None, until: None }
    }

    /// Sets the time limit for each message from the other process.
    pub fn patience(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Sets the deadline by which all messages of the hand-over must have been sent and received.
    pub fn until(&mut self, deadline: Instant) {
        self.until = Some(deadline);
    }

    /// Returns the deadline for a message that begins now. Returns `None` if there is no time limit.
    fn deadline(&self) -> Option<Instant> {
        let own = self.patience.and_then(|patience| Instant::now().checked_add(patience));
        own.into_iter().chain(self.until).min()
    }

    /// Sets the timeouts of the socket, so that the next call on the socket returns by `deadline`.
    fn wait_until(&self, deadline: Option<Instant>) -> std::io::Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.set_write_timeout(Some(left))
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Option<Instant>) -> std::io::Result<()> {
        while !bytes.is_empty() {
            self.wait_until(deadline)?;
            match self.socket.write(bytes) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, mut bytes: &mut [u8], deadline: Option<Instant>) -> std::io::Result<()> {
        while !bytes.is_empty() {
            self.wait_until(deadline)?;
            match self.socket.read(bytes) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a message and the descriptors that belong to it.
    ///
    /// # Errors
    /// Returns an error if the other process has ended or does not read in time.
    pub fn send(
        &mut self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), HandoverError> {
        let silent = |error| HandoverError::Silent("the arrival of a message", error);
        let own = |error: serde_json::Error| HandoverError::Own(error.to_string());
        let deadline = self.deadline();
        let mut text = Text { bytes: vec![0; HEAD], length: 0 };
        serde_json::to_writer(&mut text, message).map_err(own)?;
        let number = |of: usize| u64::try_from(of).unwrap_or(u64::MAX).to_le_bytes();
        let head = [number(text.length), number(descriptors.len())].concat();
        if text.is_long() {
            drop(text);
            let mut pieces = BufWriter::with_capacity(PIECE, Timed { link: self, deadline });
            pieces.write_all(&head).map_err(silent)?;
            serde_json::to_writer(&mut pieces, message).map_err(|error| silent(error.into()))?;
            pieces.flush().map_err(silent)?;
        } else {
            // A short message is written in one piece, so that it arrives completely or not at all.
            text.bytes[..HEAD].copy_from_slice(&head);
            self.write(&text.bytes, deadline).map_err(silent)?;
        }
        for some in descriptors.chunks(TOGETHER) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(some));
            self.wait_until(deadline).map_err(silent)?;
            // Signals interrupt a call on a socket with a timeout even if their handlers request a restart
            // (`SA_RESTART`).
            retry_on_intr(|| {
                sendmsg(&self.socket, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL)
            })
            .map_err(|error| silent(error.into()))?;
        }
        Ok(())
    }

    /// Receives a message. `what` names the message in errors.
    ///
    /// # Errors
    /// Returns an error if the message does not arrive in time or cannot be decoded.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
    ) -> Result<(T, Vec<OwnedFd>), HandoverError> {
        let silent = |error| HandoverError::Silent(what, error);
        let deadline = self.deadline();
        let mut head = [0; HEAD];
        self.read(&mut head, deadline).map_err(silent)?;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let (length, count) = (number(0), number(8));
        if length > LIMIT || count > DESCRIPTORS {
            return Err(HandoverError::Strange(format!("{length} bytes with {count} descriptors")));
        }
        let message = self.receive_text(length, deadline).map_err(|error| match error.io_error_kind() {
            Some(_) => silent(error.into()),
            None => HandoverError::Strange(error.to_string()),
        });
        let message = message?;
        let mut descriptors = Vec::with_capacity(count);
        while descriptors.len() < count {
            self.wait_until(deadline).and_then(|()| self.receive_some(&mut descriptors)).map_err(silent)?;
        }
        Ok((message, descriptors))
    }

    /// Receives and decodes the text of a message.
    fn receive_text<T: DeserializeOwned>(
        &mut self,
        length: usize,
        deadline: Option<Instant>,
    ) -> Result<T, serde_json::Error> {
        if length <= LONG {
            let mut text = vec![0; length];
            self.read(&mut text, deadline).map_err(serde_json::Error::io)?;
            return serde_json::from_slice(&text);
        }
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let pieces = BufReader::with_capacity(PIECE, Timed { link: self, deadline }.take(length));
        let mut decoder = serde_json::Deserializer::from_reader(pieces);
        let message = T::deserialize(&mut decoder)?;
        decoder.end()?;
        Ok(message)
    }

    /// Returns whether the socket still contains data that this process has not read. The other process must have
    /// ended, because the call would otherwise wait for data.
    pub fn is_not_at_its_end(&mut self) -> bool {
        !matches!(self.socket.read(&mut [0]), Ok(0))
    }

    fn receive_some(&mut self, to: &mut Vec<OwnedFd>) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut into = [IoSliceMut::new(&mut byte)];
        let received = retry_on_intr(|| {
            recvmsg(self.socket.as_fd(), &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        let before = to.len();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                to.extend(descriptors);
            }
        }
        if received.bytes == 0 || to.len() == before {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        }
        Ok(())
    }
}

/// JSON text of a message to send. The text of a short message is stored after the space for the header. For a long
/// message, only the length of the text is stored.
struct Text {
    bytes: Vec<u8>,
    length: usize,
}

impl Text {
    fn is_long(&self) -> bool {
        self.length > LONG
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.length = self.length.saturating_add(bytes.len());
        if self.is_long() {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reader or writer of one hand-over message on the connection, with the deadline for the message.
struct Timed<'l> {
    link: &'l mut Link,
    deadline: Option<Instant>,
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.link.wait_until(self.deadline)?;
        self.link.socket.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.link.write(bytes, self.deadline).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn messages_and_descriptors_arrive_in_order() {
        let (mut ours, theirs) = Link::pair().unwrap();
        let mut theirs = Link::over(theirs);
        // More descriptors than one call sends.
        let files: Vec<File> = (0..150).map(|_| File::open("/dev/null").unwrap()).collect();
        let reader = std::thread::spawn(move || {
            let first: (String, Vec<OwnedFd>) = theirs.receive("the first").unwrap();
            let second: (u32, Vec<OwnedFd>) = theirs.receive("the second").unwrap();
            (first, second)
        });
        let descriptors: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        ours.send(&"x".repeat(1 << 20), &descriptors).unwrap();
        ours.send(&7_u32, &[]).unwrap();
        let (first, second) = reader.join().unwrap();
        assert_eq!((first.0.len(), first.1.len()), (1 << 20, 150));
        assert_eq!((second.0, second.1.len()), (7, 0));
    }

    /// A list of numbers that is serialised without being stored in memory.
    struct Numbers<'n> {
        count: u32,
        /// Number of elements of the list that have been serialised.
        written: &'n AtomicU32,
    }

    impl Serialize for Numbers<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let count = |number| {
                self.written.fetch_add(1, Ordering::Relaxed);
                number
            };
            serializer.collect_seq((0..self.count).map(count))
        }
    }

    /// Neither the sender nor the receiver stores the whole text of a long message, for example of a million flow
    /// entries. Until the receiver reads, the sender serialises only as much of the text as fits into the socket and
    /// one piece. The descriptors arrive with the message.
    #[test]
    fn a_long_message_is_sent_in_pieces() {
        const COUNT: u32 = 5_000_000;
        let (mut ours, theirs) = Link::pair().unwrap();
        let mut theirs = Link::over(theirs);
        theirs.until(Instant::now() + Duration::from_secs(60));
        let written = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let file = File::open("/dev/null").unwrap();
                ours.send(&Numbers { count: COUNT, written: &written }, &[file.as_fd()]).unwrap();
                ours.send(&1_u32, &[]).unwrap();
            });
            let begin = Instant::now();
            while written.load(Ordering::Relaxed) <= COUNT && begin.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(100));
            let before = written.load(Ordering::Relaxed);
            assert!((COUNT..COUNT + COUNT / 4).contains(&before), "{before} numbers without a reader");
            let (numbers, descriptors) = theirs.receive::<Vec<u32>>("the numbers").unwrap();
            assert!(numbers.into_iter().eq(0..COUNT));
            assert_eq!(descriptors.len(), 1);
            assert_eq!(theirs.receive::<u32>("the next").unwrap().0, 1);
            sender.join().unwrap();
        });
    }

    #[test]
    fn what_is_left_to_read_is_told_from_the_end() {
        let (mut ours, theirs) = Link::pair().unwrap();
        let mut theirs = Link::over(theirs);
        theirs.send(&1_u32, &[]).unwrap();
        theirs.send(&2_u32, &[]).unwrap();
        drop(theirs);
        assert_eq!(ours.receive::<u32>("the first").unwrap().0, 1);
        assert!(ours.is_not_at_its_end(), "the second is left");
        let (mut ours, theirs) = Link::pair().unwrap();
        drop(theirs);
        assert!(!ours.is_not_at_its_end());
    }

    #[test]
    fn one_deadline_holds_for_all_messages_and_each_byte_of_them() {
        let (mut ours, theirs) = Link::pair().unwrap();
        ours.until(Instant::now() + Duration::from_millis(100));
        // The message never ends, and each byte of it arrives in time.
        let mut slow = theirs;
        slow.write_all(&[(1_u64 << 20).to_le_bytes(), [0; 8]].concat()).unwrap();
        let trickle = std::thread::spawn(move || {
            while slow.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let error = ours.receive::<u32>("the state").unwrap_err();
        assert!(matches!(error, HandoverError::Silent(..)), "{error}");
        drop(ours);
        trickle.join().unwrap();
    }

    #[test]
    fn silence_is_named() {
        let (mut ours, theirs) = Link::pair().unwrap();
        ours.patience(Duration::from_millis(20));
        let error = ours.receive::<u32>("the estate").unwrap_err().to_string();
        assert!(error.contains("the estate"), "{error}");
        drop(theirs);
        assert!(ours.receive::<u32>("the estate").is_err());
    }
}
