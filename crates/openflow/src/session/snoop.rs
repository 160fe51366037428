//! Snooping: a listener that connects to a bridge's snoop socket receives copies of the messages between the
//! bridge and its controllers.
//!
//! Only complete messages are copied, each in the OpenFlow version of its session. A listener that reads slowly
//! misses messages, because no session waits for a listener.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::{Activity, Ended, Incoming, PATIENCE, negotiate, until};
use crate::connection_manager::ConnectionManager;
use crate::target_status::TargetStatus;
use crate::wire::Version;

/// Sends copies of the bridge's OpenFlow messages to a snooping listener until the listener's connection ends.
pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    manager: &Arc<ConnectionManager>,
    board: &TargetStatus,
    versions: &[Version],
    activity: &Activity,
    mut stopped: watch::Receiver<bool>,
) -> Ended {
    // The subscription starts before the negotiation, so that no message is missed.
    let mut said = manager.listen();
    let (from, mut to) = tokio::io::split(stream);
    let mut incoming = Incoming { from, data: Vec::new(), used: 0 };
    let greeting = tokio::time::timeout(PATIENCE, negotiate(&mut incoming, &mut to, versions));
    let greeted = tokio::select! {
        greeted = greeting => greeted,
        () = until(&mut stopped) => return Ended::Stopped,
    };
    let number = match greeted {
        Ok(Ok(version)) => {
            activity.admit();
            board.came(version)
        }
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::Silent(PATIENCE),
    };
    let ended = tokio::select! {
        ended = pass_on(&mut said, incoming.from, &mut to) => ended,
        () = until(&mut stopped) => Ended::Stopped,
    };
    board.left(number);
    ended
}

async fn pass_on<S: AsyncRead + AsyncWrite + Send>(
    said: &mut Receiver<Arc<[u8]>>,
    mut from: ReadHalf<S>,
    to: &mut WriteHalf<S>,
) -> Ended {
    let mut unread = [0; 1024];
    loop {
        let message = tokio::select! {
            message = said.recv() => match message {
                Ok(message) => message,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ended::Stopped,
            },
            // Requests of the listener are ignored. Reading detects the end of the connection.
            read = from.read(&mut unread) => match read {
                Ok(0) => return Ended::Closed,
                Ok(_) => continue,
                Err(error) => return error.into(),
            },
        };
        match tokio::time::timeout(PATIENCE, to.write_all(&message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return Ended::Stuck,
        }
    }
}
