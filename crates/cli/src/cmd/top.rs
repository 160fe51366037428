//! `trivium top`: display of the daemon's counters and states, updated once a second.
//!
//! On a terminal, the display fills the screen with one page (a table) until `q` is pressed.
//! Without a terminal, the command prints one table a second. The diagram shows the modules in the
//! direction of the data:
//!
//! ```text
//!   feed ── counters and states ──> readings ── sheet of each page ──> state ──> render, detail
//!                                   (pages: states to rows)            keys ──^
//! ```

mod detail;
mod feed;
mod pages;
mod readings;
mod render;
mod sheet;
mod state;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::args::Top;
use crate::client::Client;
use crate::failure::Failure;
use crate::live::{self, CounterEvents, Rates};
use state::App;

/// Interval at which `trivium top` reads pressed keys.
const KEYS: Duration = Duration::from_millis(50);

/// Shows counters until the time is over or the user quits.
///
/// # Errors
/// Returns an error if the daemon does not answer.
pub async fn top(client: &Client, args: &Top) -> Result<(), Failure> {
    let mut events = CounterEvents::open(client).await?;
    let deadline = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    if std::io::stdout().is_terminal() {
        let mut terminal = ratatui::try_init()
            .map_err(|error| Failure::new("terminal", error, "use `trivium show` instead"))?;
        let shown = full_screen(&mut terminal, client, events, deadline).await;
        ratatui::restore();
        shown
    } else {
        lines(&mut events, deadline).await
    }
}

/// Returns the failure of the command for an error of the terminal.
fn broken(error: std::io::Error) -> Failure {
    Failure::new("terminal", error, "")
}

async fn full_screen(
    terminal: &mut ratatui::DefaultTerminal,
    client: &Client,
    events: CounterEvents,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let mut app = App::default();
    let (needed, of_page) = watch::channel(app.resources());
    let (sender, mut updates) = mpsc::channel(16);
    let reader = tokio::spawn(feed::run(client.clone(), events, of_page, sender));
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut ticks = tokio::time::interval(KEYS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let start = Instant::now();
    let mut changed = true;
    let result = loop {
        if changed {
            if let Err(error) = terminal.draw(|frame| render::draw(frame, &mut app)) {
                break Err(broken(error));
            }
            changed = false;
        }
        tokio::select! {
            update = updates.recv() => match update {
                Some(update) => {
                    app.update(update, start.elapsed());
                    changed = true;
                }
                None => break Ok(()),
            },
            _ = terminate.recv() => break Ok(()),
            _ = ticks.tick() => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    break Ok(());
                }
                match keys(terminal, &mut app) {
                    Ok((ControlFlow::Break(()), _)) => break Ok(()),
                    Ok((ControlFlow::Continue(()), pressed)) => changed |= pressed,
                    Err(error) => break Err(broken(error)),
                }
                let resources = app.resources();
                needed.send_if_modified(|needed| {
                    let modified = *needed != resources;
                    *needed = resources;
                    modified
                });
            }
        }
    };
    reader.abort();
    result
}

/// Applies the pending events of the terminal. Returns `Break` if the user quits, and whether there was an event.
fn keys(terminal: &ratatui::DefaultTerminal, app: &mut App) -> std::io::Result<(ControlFlow<()>, bool)> {
    let mut pressed = false;
    while event::poll(Duration::ZERO)? {
        let event = event::read()?;
        pressed = true;
        if let Event::Key(key) = event
            && key.kind != KeyEventKind::Release
        {
            let height = render::rows(terminal.size()?.height);
            if app.key(key, height).is_break() {
                return Ok((ControlFlow::Break(()), true));
            }
        }
    }
    Ok((ControlFlow::Continue(()), pressed))
}

/// Prints one table of counters a second until the time is over.
async fn lines(events: &mut CounterEvents, deadline: Option<Instant>) -> Result<(), Failure> {
    let ended = || Failure::new("daemon", "it has ended the stream", "it may have restarted; try again");
    let mut rates = Rates::default();
    loop {
        let until = deadline.unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
        let Ok(counters) = tokio::time::timeout_at(until, events.next()).await else { return Ok(()) };
        rates.update(counters.ok_or_else(ended)?);
        print!("{}", live::text(&rates));
    }
}
