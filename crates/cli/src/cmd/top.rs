//! `trivium top`: live view of ports, workers and drops, from the daemon's stream of counters. On a terminal,
//! the view fills the screen until `q` is pressed. Elsewhere, the command prints one table a second.

use std::io::IsTerminal;
use std::time::Duration;

use crate::args::Top;
use crate::client::{Client, Stream};
use crate::failure::Failure;
use crate::live::{self, Rates};

/// Shows counters until the time is over or the user quits.
///
/// # Errors
/// The daemon does not answer.
pub async fn top(client: &Client, args: &Top) -> Result<(), Failure> {
    let mut stream = client.stream("/v1/events?interval_ms=1000").await?;
    let deadline = args.seconds.map(|seconds| tokio::time::Instant::now() + Duration::from_secs(seconds));
    if std::io::stdout().is_terminal() {
        let mut terminal = ratatui::try_init()
            .map_err(|error| Failure::new("terminal", error, "use `trivium show` instead"))?;
        let shown = full_screen(&mut terminal, &mut stream, deadline).await;
        ratatui::restore();
        shown
    } else {
        lines(&mut stream, deadline).await
    }
}

fn ended() -> Failure {
    Failure::new("daemon", "it has ended the stream", "it may have restarted; try again")
}

async fn full_screen(
    terminal: &mut ratatui::DefaultTerminal,
    stream: &mut Stream,
    deadline: Option<tokio::time::Instant>,
) -> Result<(), Failure> {
    let mut rates = Rates::default();
    let mut keys = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            counters = live::next(stream) => {
                rates.update(counters.ok_or_else(ended)?);
                let drawn = terminal.draw(|frame| live::draw(frame, &rates, &["q: quit"]));
                drawn.map_err(|error| Failure::new("terminal", error, ""))?;
            }
            _ = keys.tick() => {
                if live::quit_pressed() || deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline) {
                    return Ok(());
                }
            }
        }
    }
}

async fn lines(stream: &mut Stream, deadline: Option<tokio::time::Instant>) -> Result<(), Failure> {
    let mut rates = Rates::default();
    loop {
        let until = deadline.unwrap_or_else(|| tokio::time::Instant::now() + Duration::from_secs(86_400));
        let Ok(counters) = tokio::time::timeout_at(until, live::next(stream)).await else { return Ok(()) };
        rates.update(counters.ok_or_else(ended)?);
        print!("{}", live::text(&rates));
    }
}
