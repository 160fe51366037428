//! Details of one port in `trivium top`: state, counters with sparklines, drops by reason, queues and workers.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, Wrap};

use super::pages::{self, Page};
use super::readings::Readings;
use super::sheet::{self, Kind, Order, figure, sparkline};
use super::state::App;
use crate::table::short;

/// Width of the labels of the counters in characters.
const LABEL: usize = 9;

/// Draws the page with the details of a port.
pub fn draw(frame: &mut Frame<'_>, app: &mut App, port: &str, area: Rect) {
    let [state, counters, lists] =
        Layout::vertical([Constraint::Length(3), Constraint::Length(6), Constraint::Fill(1)]).areas(area);
    let (drops, queues) = (drops(app.readings(), port), queues(app.readings(), port));
    let height = usize::from(lists.height.saturating_sub(1));
    let most = drops.len().max(queues.len()).saturating_sub(height);
    app.detail_offset = app.detail_offset.min(most);
    frame.render_widget(Paragraph::new(described(app.readings(), port)).wrap(Wrap { trim: true }), state);
    let text = counted(app.readings(), port, usize::from(counters.width));
    frame.render_widget(Paragraph::new(text), counters);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).spacing(2).areas(lists);
    let widths = [Constraint::Fill(1), Constraint::Length(8), Constraint::Length(8)];
    list(frame, ["DROP REASON", " DROPS/s", "   DROPS"], &widths, drops, app.detail_offset, left);
    let widths = [Constraint::Length(7), Constraint::Length(7), Constraint::Length(5), Constraint::Fill(1)];
    list(frame, ["QUEUE", "WORKER", "CORE", "BUSY"], &widths, queues, app.detail_offset, right);
}

/// Draws the rows of a table from the row `offset` on, below the headings.
fn list<const COLUMNS: usize>(
    frame: &mut Frame<'_>,
    headings: [&'static str; COLUMNS],
    widths: &[Constraint],
    rows: Vec<[String; COLUMNS]>,
    offset: usize,
    area: Rect,
) {
    let rows = rows.into_iter().skip(offset).map(Row::new);
    let header = Row::new(headings).style(Style::new().bold());
    frame.render_widget(Table::new(rows, widths.iter().copied()).header(header), area);
}

/// Returns a text about the state of the port, and the port's problem or the reasons why faster
/// modes are not possible.
fn described(readings: &Readings, name: &str) -> Vec<Line<'static>> {
    let Some(port) = readings.port(name) else {
        let known = readings.port_counters(name).is_some();
        let text = if known { "waiting for the daemon" } else { "there is no such port any more" };
        return vec![Line::from(format!("port {name}: {text}")).style(Style::new().bold())];
    };
    let first = format!("port {name}: {}, {}", port.link(), pages::described(port));
    let mut lines = vec![Line::from(first).style(Style::new().bold())];
    if let Some(trouble) = &port.trouble {
        lines.push(Line::from(trouble.clone()).style(Style::new().fg(Color::Red)));
    } else if let Some(shortcut) = &port.shortcut {
        lines.push(Line::from(format!("hook: {shortcut}")));
    } else if let Some(reason) = port.reasons.first() {
        lines.push(Line::from(reason.clone()));
    }
    lines
}

/// Returns the counters of the port: rate, total, and a sparkline of the rate.
fn counted(readings: &Readings, name: &str, width: usize) -> Vec<Line<'static>> {
    let heading = format!("{:LABEL$}{:>9}{:>9}", "COUNTER", "NOW", "TOTAL");
    let mut text = vec![Line::from(heading).style(Style::new().bold())];
    let line = readings.sheet(Page::Ports).line(name);
    let total = readings.port_counters(name).copied().unwrap_or_default();
    let counters = [
        ("RX p/s", pages::RX_PACKETS, total.rx_packets),
        ("RX bit/s", pages::RX_BITS, total.rx_bytes.saturating_mul(8)),
        ("TX p/s", pages::TX_PACKETS, total.tx_packets),
        ("TX bit/s", pages::TX_BITS, total.tx_bytes.saturating_mul(8)),
        ("DROPS/s", pages::DROPS, total.drops + total.rx_missed),
    ];
    for (label, column, total) in counters {
        let now = line.and_then(|line| line.values.get(column)?.number());
        let now = now.map_or_else(|| "-".to_owned(), figure);
        let bars = width.saturating_sub(LABEL + 20);
        let bars = line.map_or_else(String::new, |line| sparkline(&line.history(&[column]), None, bars));
        text.push(Line::from(format!("{label:LABEL$}{now:>9}{:>9}  {bars}", short(total))));
    }
    text
}

/// Returns the drops on the port by reason, in descending order of their number.
fn drops(readings: &Readings, name: &str) -> Vec<[String; 3]> {
    let columns = Page::Drops.columns();
    let sheet = readings.sheet(Page::Drops);
    let lines = sheet.shown(Order { column: pages::DROP_COUNT, descending: true }, "");
    let own = lines.into_iter().filter(|line| pages::dropped_at(&line.key) == name);
    let text = |line: &sheet::Line, column: usize| {
        line.values.get(column).map_or_else(String::new, |value| value.format(columns[column].kind))
    };
    own.map(|line| {
        let (rate, count) = (text(line, pages::DROP_RATE), text(line, pages::DROP_COUNT));
        [text(line, pages::DROP_REASON), format!("{rate:>8}"), format!("{count:>8}")]
    })
    .collect()
}

/// Returns the queues of the port, with the worker of each queue.
fn queues(readings: &Readings, name: &str) -> Vec<[String; 4]> {
    let mut queues = Vec::new();
    for worker in readings.workers() {
        let busy = sheet::Value::Number(Some(worker.busy)).format(Kind::Percent);
        for queue in &worker.queues {
            let Some((_, number)) = queue.rsplit_once('/').filter(|(port, _)| *port == name) else {
                continue;
            };
            queues.push([number.to_owned(), worker.id.to_string(), worker.core_text(), busy.clone()]);
        }
    }
    queues.sort_by_key(|[number, ..]| number.parse().unwrap_or(u16::MAX));
    queues
}
