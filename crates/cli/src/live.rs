//! Tables of packet rates, updated once a second, for `trivium top` and the demo. The rates are
//! computed from two sets of counters. The tables are drawn on the terminal or printed as text.

use std::time::Duration;

use model::{Counters, PortCounters, WorkerState};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table as Grid};

use crate::client::{Client, Stream};
use crate::failure::Failure;
use crate::table::{Table, by_number, folded, short};

/// The last two sets of counters that the daemon has sent. Rates are computed from their difference.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    before: Counters,
    now: Counters,
}

/// Packet and bit rates of one port, per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PortRate {
    /// Packets received per second.
    pub rx_packets: f64,
    /// Bits received per second.
    pub rx_bits: f64,
    /// Packets sent per second.
    pub tx_packets: f64,
    /// Bits sent per second.
    pub tx_bits: f64,
    /// Packets lost per second: packets that the data plane dropped, and packets that were lost
    /// before a worker received them.
    pub drops: f64,
}

impl Rates {
    /// Adds a new set of counters. The set that was the newest before becomes the older set.
    pub fn update(&mut self, counters: Counters) {
        self.before = std::mem::replace(&mut self.now, counters);
    }

    fn seconds(&self) -> f64 {
        let before = if self.before.ports.is_empty() { self.now.at_ns } else { self.before.at_ns };
        number(self.now.at_ns.saturating_sub(before)) / 1e9
    }

    /// Returns the rates of each port, sorted by name with numbers in numerical order. All rates are 0 until
    /// the second set of counters has been added.
    pub fn ports(&self) -> Vec<(String, PortRate)> {
        let seconds = self.seconds();
        let rate = |now: u64, before: u64| {
            if seconds > 0.0 { number(now.saturating_sub(before)) / seconds } else { 0.0 }
        };
        let port = |(name, now): (&String, &PortCounters)| {
            let before = self.before.ports.get(name).copied().unwrap_or_default();
            let rates = PortRate {
                rx_packets: rate(now.rx_packets, before.rx_packets),
                rx_bits: rate(now.rx_bytes, before.rx_bytes) * 8.0,
                tx_packets: rate(now.tx_packets, before.tx_packets),
                tx_bits: rate(now.tx_bytes, before.tx_bytes) * 8.0,
                drops: rate(now.drops + now.rx_missed, before.drops + before.rx_missed),
            };
            (name.clone(), rates)
        };
        let mut ports: Vec<(String, PortRate)> = self.now.ports.iter().map(port).collect();
        ports.sort_by(|(one, _), (other, _)| by_number(one, other));
        ports
    }

    /// Returns the states of the workers in the newest set of counters.
    pub fn workers(&self) -> &[WorkerState] {
        &self.now.workers
    }

    /// Returns the number of packets dropped so far, by reason, with the largest number first.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let mut drops: Vec<(String, u64)> =
            self.now.drops.iter().map(|(reason, count)| (reason.clone(), *count)).collect();
        drops.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        drops
    }
}

#[allow(clippy::cast_precision_loss, reason = "rates for people to read")]
fn number(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, rounded for people")]
fn rounded(rate: f64) -> String {
    short(rate.max(0.0).round() as u64)
}

fn cells(name: &str, rate: &PortRate) -> [String; 6] {
    [
        name.to_owned(),
        rounded(rate.rx_packets),
        rounded(rate.rx_bits),
        rounded(rate.tx_packets),
        rounded(rate.tx_bits),
        rounded(rate.drops),
    ]
}

/// Stream of counters that the daemon sends, one set a second.
#[derive(Debug)]
pub struct CounterEvents {
    stream: Stream,
    /// Whether the event that is being received contains counters.
    counters: bool,
}

impl CounterEvents {
    /// Opens the daemon's stream of counters.
    ///
    /// # Errors
    /// Returns an error if the daemon does not answer.
    pub async fn open(client: &Client) -> Result<CounterEvents, Failure> {
        let stream = client.stream("/v1/events?interval_ms=1000").await?;
        Ok(CounterEvents { stream, counters: false })
    }

    /// Returns the next set of counters, or `None` when the daemon has ended the stream. Events with other
    /// names are skipped. No event is lost if the returned future is dropped before it is ready.
    pub async fn next(&mut self) -> Option<Counters> {
        loop {
            let line = self.stream.line().await?;
            if let Some(name) = line.strip_prefix("event:") {
                self.counters = name.trim() == "counters";
            } else if let Some(data) = line.strip_prefix("data:").filter(|_| self.counters) {
                return serde_json::from_str(data.trim_start()).ok();
            }
        }
    }
}

/// Reads the pending keys, and returns whether `q`, Esc or Ctrl-C is among them.
pub fn quit_pressed() -> bool {
    while event::poll(Duration::ZERO).unwrap_or(false) {
        if let Ok(Event::Key(key)) = event::read() {
            let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return true;
            }
        }
    }
    false
}

/// Returns the rates as text: a table of ports, a line of workers, and a line of drops.
pub fn text(rates: &Rates) -> String {
    let mut table = Table::new(&["PORT", ">RX p/s", ">RX bit/s", ">TX p/s", ">TX bit/s", ">DROPS/s"]);
    for (name, rate) in rates.ports() {
        table.row(cells(&name, &rate));
    }
    let workers = rates
        .workers()
        .iter()
        .map(|worker| format!("worker {} {:.1} % busy", worker.id, worker.busy * 100.0));
    let workers: Vec<String> = workers.collect();
    let drops: Vec<String> =
        rates.drops().iter().take(4).map(|(reason, count)| format!("{reason} {}", short(*count))).collect();
    let drops = if drops.is_empty() { "none".to_owned() } else { drops.join(", ") };
    format!("{}{}; drops: {drops}\n\n", table.render(), workers.join(", "))
}

/// Draws the rates on the terminal, with the lines of `notes` below.
pub fn draw(frame: &mut Frame<'_>, rates: &Rates, notes: &[&str]) {
    let ports = rates.ports();
    let height = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(3);
    let areas = Layout::vertical([
        Constraint::Length(height(ports.len())),
        Constraint::Length(height(rates.workers().len())),
        Constraint::Min(3),
        Constraint::Length(u16::try_from(notes.len()).unwrap_or(1)),
    ])
    .split(frame.area());
    let heading = Style::new().bold();
    let rows = ports.iter().map(|(name, rate)| {
        let row = Row::new(cells(name, rate).map(Cell::from));
        if rate.drops > 0.5 { row.style(Style::new().fg(Color::Yellow)) } else { row }
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ];
    let header = Row::new(["port", "rx p/s", "rx bit/s", "tx p/s", "tx bit/s", "drops/s"]).style(heading);
    frame.render_widget(
        Grid::new(rows, widths).header(header).block(Block::bordered().title("ports")),
        areas[0],
    );
    let rows = rates.workers().iter().map(|worker| {
        let state = if worker.sleeping { "asleep" } else { "awake" };
        Row::new([
            worker.id.to_string(),
            worker.core_text(),
            format!("{:.1} %", worker.busy * 100.0),
            state.to_owned(),
            folded(&worker.queues),
        ])
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Length(5),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Fill(1),
    ];
    let header = Row::new(["worker", "core", "busy", "state", "queues"]).style(heading);
    frame.render_widget(
        Grid::new(rows, widths).header(header).block(Block::bordered().title("workers")),
        areas[1],
    );
    let drops: Vec<Line<'_>> = rates
        .drops()
        .into_iter()
        .map(|(reason, count)| Line::from(format!("{:>8}  {reason}", short(count))))
        .collect();
    frame.render_widget(
        Paragraph::new(drops).block(Block::bordered().title("drops since the start")),
        areas[2],
    );
    let notes: Vec<Line<'_>> = notes.iter().map(|note| Line::from((*note).to_owned())).collect();
    frame.render_widget(Paragraph::new(notes), areas[3]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(at_ns: u64, rx_packets: u64, drops: u64) -> Counters {
        let port = PortCounters { rx_packets, rx_bytes: rx_packets * 100, drops, ..PortCounters::default() };
        Counters { at_ns, ports: [("web1".to_owned(), port)].into(), ..Counters::default() }
    }

    #[test]
    fn rates_come_from_two_moments() {
        let mut rates = Rates::default();
        rates.update(counters(1_000_000_000, 500, 0));
        assert_eq!(rates.ports()[0].1, PortRate::default(), "one moment has no rate");
        rates.update(counters(3_000_000_000, 2_500, 10));
        let rate = rates.ports()[0].1;
        assert!(
            (rate.rx_packets - 1_000.0).abs() < 1e-6 && (rate.rx_bits - 800_000.0).abs() < 1e-3,
            "{rate:?}"
        );
        assert!((rate.drops - 5.0).abs() < 1e-6);
        let text = text(&rates);
        assert!(text.contains("web1   1.00k      800k"), "{text}");
    }
}
