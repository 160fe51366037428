//! Drawing of `trivium top`: a line of pages, a summary, the rows of the page, and a line of keys.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::detail;
use super::feed::RULES;
use super::pages::{self, Page};
use super::sheet::{self, Column, Kind, figure, sparkline};
use super::state::{App, Connection};
use crate::table::counted;

/// Number of screen lines other than the rows of a page: pages, summary, headings, note and keys.
const AROUND: u16 = 5;
/// Width of a row's sparkline in characters, on pages with a column that takes the remaining width.
const SPARK: u16 = 10;
/// Minimum width and height of the terminal in characters.
const MINIMUM: (u16, u16) = (40, 8);

const KEYS: &str = "Enter: details  /: filter  < >: sort  r: reverse  p: pause  ?: help  q: quit";
const KEYS_OF_DETAIL: &str = "Up, Down: scroll  p: pause  Esc: back  ?: help  q: quit";
const KEYS_OF_FILTER: &str = "Enter: keep the filter  Esc: remove the filter";

const HELP: &str = "\
1 to 7, Tab         show a page
Up, Down, PgUp, PgDn, Home, End
                    select a row (also k, j, g, G)
Enter               show the details of a port, or the rules of a bridge
/                   show only rows that contain a text
< and >             sort by another column (also Left and Right)
r                   reverse the order
p                   pause and continue (also Space)
?                   show and hide this list
Esc                 leave help, details or filter; quit
q                   quit

p/s are packets a second. k, M and G stand for 1000, 1000000 and 1000000000.
Each sparkline shows one value a second, the newest at the right.";

/// Returns the number of table rows that fit on a terminal of this height in lines.
pub fn rows(height: u16) -> usize {
    usize::from(height.saturating_sub(AROUND)).max(1)
}

/// Draws the screen of `trivium top`.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < MINIMUM.0 || area.height < MINIMUM.1 {
        let text = format!("the terminal is smaller than {} x {}", MINIMUM.0, MINIMUM.1);
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let [tabs, summary, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(page_names(app.page)), tabs);
    draw_summary(frame, app, summary);
    if app.help {
        frame.render_widget(Paragraph::new(HELP), body);
    } else if let Some(port) = app.detail.clone() {
        detail::draw(frame, app, &port, body);
    } else {
        draw_page(frame, app, body);
    }
    let help = match (app.editing, app.detail.is_some()) {
        (true, _) => KEYS_OF_FILTER,
        (false, true) => KEYS_OF_DETAIL,
        (false, false) => KEYS,
    };
    frame.render_widget(Paragraph::new(help).style(Style::new().dim()), keys);
}

fn page_names(current: Page) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, page) in (1..).zip(Page::ALL) {
        let name = Span::raw(format!(" {number} {} ", page.name()));
        spans.push(if page == current { name.style(Style::new().bold().reversed()) } else { name });
    }
    Line::from(spans)
}

/// Draws the summary line. A loss of the connection or a refused request is shown instead of the
/// summary.
fn draw_summary(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let paused = if app.is_paused() { " PAUSED " } else { "" };
    let width = u16::try_from(paused.len()).unwrap_or(0);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(area);
    frame.render_widget(Paragraph::new(paused).style(Style::new().bold().reversed()), right);
    let alarm = Style::new().fg(Color::Red).bold();
    let (text, style) = match (&app.connection, app.refused.values().next()) {
        (Connection::Lost(reason), _) => (format!("no connection: {reason}; connecting again"), alarm),
        (Connection::Restored(_), _) => {
            ("connected to the daemon again".to_owned(), Style::new().fg(Color::Green).bold())
        }
        (Connection::Established, Some(reason)) => (reason.clone(), alarm),
        (Connection::Established, None) => (summary(app), Style::new()),
    };
    frame.render_widget(Paragraph::new(text).style(style), left);
}

/// Returns the summary line of a page: number of rows, filter, and sums of columns.
fn summary(app: &App) -> String {
    let (readings, filter) = (app.readings(), &app.table().filter);
    let sheet = readings.sheet(app.page);
    let all = sheet.lines().len();
    let mut parts = vec![if filter.is_empty() {
        counted(all, app.page.noun())
    } else {
        format!("{} of {} with \"{filter}\"", app.lines().len(), counted(all, app.page.noun()))
    }];
    match app.page {
        Page::Flows => {
            if all >= RULES {
                parts[0] += " (more are left out)";
            }
            if let Some(caches) = readings.caches().lines().first() {
                let names = pages::CACHES.iter().zip(&caches.values);
                parts.extend(names.map(|(column, value)| {
                    let unit = if column.kind == Kind::Rate { "/s" } else { "" };
                    format!("{} {}{unit}", column.title, value.format(column.kind))
                }));
            }
        }
        Page::Drops => parts.push(format!("{} drops/s", figure(sheet.sum(pages::DROP_RATE)))),
        _ => {
            let ports = readings.sheet(Page::Ports);
            let sum = |column| figure(ports.sum(column));
            parts.push(format!("RX {} p/s {} bit/s", sum(pages::RX_PACKETS), sum(pages::RX_BITS)));
            parts.push(format!("TX {} p/s {} bit/s", sum(pages::TX_PACKETS), sum(pages::TX_BITS)));
            parts.push(format!("{} drops/s", sum(pages::DROPS)));
        }
    }
    parts.join(", ")
}

/// Draws the rows of the page. Draws the note of the selected row, or the filter, in the line below.
fn draw_page(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let [table, note] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    let height = usize::from(table.height.saturating_sub(1));
    let (count, selected) = {
        let lines = app.lines();
        (lines.len(), app.selected(&lines))
    };
    let offset = scrolled(app.table().offset, selected, count, height);
    app.table_mut().offset = offset;
    let app = &*app;
    let lines = app.lines();
    let shown = lines.get(offset..(offset + height).min(count)).unwrap_or_default();
    draw_rows(frame, app, shown, selected - offset.min(selected), table);
    let below = if app.editing {
        Line::from(format!("filter: {}_", app.table().filter)).style(Style::new().bold())
    } else {
        Line::from(lines.get(selected).map_or("", |line| line.note.as_str()))
    };
    frame.render_widget(Paragraph::new(below), note);
    if count == 0 {
        let [_, place] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(table);
        frame.render_widget(Paragraph::new(empty(app)), place);
    }
}

/// Returns the text that is shown on a page without rows.
fn empty(app: &App) -> String {
    let (noun, table) = (app.page.noun(), app.table());
    if !app.readings().sheet(app.page).is_read() {
        return if app.is_paused() { "not read before the pause" } else { "waiting for the daemon" }
            .to_owned();
    }
    if !table.filter.is_empty() {
        return format!("no {noun} contains \"{}\"", table.filter);
    }
    match app.page {
        Page::Drops => "nothing was dropped".to_owned(),
        _ => format!("there is no {noun}"),
    }
}

/// Returns the scroll position: the index of the first shown row, chosen so that the selected row
/// is visible.
fn scrolled(offset: usize, selected: usize, count: usize, height: usize) -> usize {
    let first = (selected + 1).saturating_sub(height);
    offset.clamp(first, selected.max(first)).min(count.saturating_sub(height))
}

/// Draws the headings and the given rows. One of the rows is selected.
fn draw_rows(frame: &mut Frame<'_>, app: &App, lines: &[&sheet::Line], selected: usize, area: Rect) {
    let columns = app.page.columns();
    let (traced, trace_title) = app.page.traced();
    let fills = columns.iter().any(|column| column.width == 0);
    let mut widths: Vec<Constraint> =
        columns.iter().enumerate().map(|(at, column)| width(*column, at, lines)).collect();
    widths.push(if fills { Constraint::Length(SPARK) } else { Constraint::Fill(1) });
    let spark = usize::from(column_width(&widths, area));
    let most = (columns[traced[0]].kind == Kind::Percent).then_some(1.0);
    let rows = lines.iter().enumerate().map(|(at, line)| {
        let cells = columns.iter().zip(&line.values);
        let mut cells: Vec<Cell<'_>> =
            cells.map(|(column, value)| cell(value.format(column.kind), column.kind)).collect();
        cells.push(Cell::from(sparkline(&line.history(traced), most, spark)));
        let row = Row::new(cells);
        match (at == selected, line.trouble) {
            (true, _) => row.style(Style::new().reversed()),
            (false, true) => row.style(Style::new().fg(Color::Red)),
            (false, false) => row,
        }
    });
    let order = app.table().order;
    let mark = if order.descending { '▼' } else { '▲' };
    let mut headings: Vec<Cell<'_>> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let title =
                if at == order.column { format!("{}{mark}", column.title) } else { column.title.to_owned() };
            cell(title, column.kind)
        })
        .collect();
    headings.push(Cell::from(format!("{trace_title:>spark$}")));
    frame.render_widget(Table::new(rows, widths).header(Row::new(headings).style(Style::new().bold())), area);
}

/// Returns the width in characters of the last column.
fn column_width(widths: &[Constraint], area: Rect) -> u16 {
    Layout::horizontal(widths.iter().copied()).spacing(1).split(area).last().map_or(0, |area| area.width)
}

/// Returns the width of a column. A column with texts is as wide as its longest shown text, up to its maximum
/// width.
fn width(column: Column, at: usize, lines: &[&sheet::Line]) -> Constraint {
    // The heading of the column by which rows are sorted has a mark.
    let title = column.title.len() + 1;
    match (column.kind, column.width) {
        (_, 0) => Constraint::Fill(1),
        (Kind::Text, most) => {
            let texts = lines.iter().filter_map(|line| line.values.get(at));
            let longest = texts.map(|value| value.format(column.kind).chars().count()).max().unwrap_or(0);
            let longest = u16::try_from(longest.max(title)).unwrap_or(u16::MAX);
            Constraint::Length(longest.min(most))
        }
        (_, width) => Constraint::Length(width),
    }
}

/// Returns a cell, with numbers aligned to the right.
fn cell(text: String, kind: Kind) -> Cell<'static> {
    let alignment = if kind == Kind::Text { Alignment::Left } else { Alignment::Right };
    Cell::from(Text::from(text).alignment(alignment))
}

#[cfg(test)]
mod tests {
    use super::scrolled;

    #[test]
    fn the_selected_row_is_always_on_the_screen() {
        for height in 1..8 {
            for count in 1..20 {
                for selected in 0..count {
                    for offset in 0..25 {
                        let first = scrolled(offset, selected, count, height);
                        let place = (offset, selected, count, height, first);
                        assert!(first <= selected && selected < first + height, "{place:?}");
                        assert!(first + height <= count.max(height), "rows below are empty: {place:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_screen_does_not_scroll_while_the_selected_row_is_visible() {
        assert_eq!(scrolled(3, 5, 20, 6), 3);
        assert_eq!(scrolled(3, 9, 20, 6), 4);
        assert_eq!(scrolled(3, 2, 20, 6), 2);
    }
}
