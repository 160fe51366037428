//! State of the screen of `trivium top`, as a state machine. Inputs are pressed keys and data from the daemon. The
//! renderer draws the state. The module accesses neither the terminal nor the daemon.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::feed::{Resource, Update};
use super::pages::{self, Page};
use super::readings::Readings;
use super::sheet::{Kind, Line, Order};

/// Time for which the screen shows that the connection to the daemon is established again.
const RESTORED: Duration = Duration::from_secs(5);

/// Order, filter and selection of the rows of one page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Order in which the rows of the page are sorted.
    pub order: Order,
    /// Filter: only rows that contain this text are shown. Empty means all rows.
    pub filter: String,
    /// Scroll position: index of the first row on the screen.
    pub offset: usize,
    /// Key of the selected row. `None` means the first row.
    selected: Option<String>,
    /// Index of the selected row at the time of the selection. If the row disappears, the row at this index is
    /// selected.
    index: usize,
}

/// State of the connection to the daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Connection {
    /// The connection to the daemon is established.
    Established,
    /// There is no connection to the daemon. The text is the reason.
    Lost(String),
    /// The connection to the daemon was established again at this time.
    Restored(Duration),
}

/// State of the screen of `trivium top`.
#[derive(Clone, Debug)]
pub struct App {
    /// Page that the screen shows.
    pub page: Page,
    /// Name of the port whose details are shown. `None` if the rows of the page are shown.
    pub detail: Option<String>,
    /// Scroll position of the lists in the details: index of the first shown row.
    pub detail_offset: usize,
    /// Whether the list of keys (help) is shown.
    pub help: bool,
    /// Whether the user is typing the filter: pressed keys are added to its text.
    pub editing: bool,
    /// State of the connection to the daemon.
    pub connection: Connection,
    /// Reason why the daemon refused the last request, for each state that the page needs.
    pub refused: BTreeMap<Resource, String>,
    tables: [Table; Page::ALL.len()],
    live: Readings,
    /// Data from the daemon at the time when the user paused the display. `None` if the display is
    /// not paused.
    frozen: Option<Box<Readings>>,
}

impl Default for App {
    fn default() -> Self {
        let table = |page: Page| Table {
            order: page.order(),
            filter: String::new(),
            offset: 0,
            selected: None,
            index: 0,
        };
        App {
            page: Page::default(),
            detail: None,
            detail_offset: 0,
            help: false,
            editing: false,
            connection: Connection::Established,
            refused: BTreeMap::new(),
            tables: Page::ALL.map(table),
            live: Readings::default(),
            frozen: None,
        }
    }
}

impl App {
    /// Returns whether the user has paused the display.
    pub fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// Returns the data that is shown: the latest data, or the data at the time of the pause.
    pub fn readings(&self) -> &Readings {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    /// Returns order, filter and selection of the shown page.
    pub fn table(&self) -> &Table {
        &self.tables[self.page.index()]
    }

    /// Returns a mutable reference to the order, filter and selection of the shown page.
    pub fn table_mut(&mut self) -> &mut Table {
        &mut self.tables[self.page.index()]
    }

    /// Returns the shown rows of the page in their order.
    pub fn lines(&self) -> Vec<&Line> {
        let table = self.table();
        self.readings().sheet(self.page).shown(table.order, &table.filter)
    }

    /// Returns the index of the selected row among the shown rows. If the selected row has
    /// disappeared, the row that is now at the same index is selected.
    pub fn selected(&self, lines: &[&Line]) -> usize {
        let table = self.table();
        let found = table.selected.as_ref().and_then(|key| lines.iter().position(|line| line.key == *key));
        found.unwrap_or(table.index).min(lines.len().saturating_sub(1))
    }

    /// Returns the states that the screen needs in addition to the counters.
    pub fn resources(&self) -> Vec<Resource> {
        let mut resources = self.page.resources().to_vec();
        if self.detail.is_some() {
            resources.extend([Resource::Ports, Resource::Drops]);
            resources.sort_unstable();
            resources.dedup();
        }
        resources
    }

    /// Applies data that was read from the daemon. `now` is the time by a monotonic clock.
    pub fn update(&mut self, update: Update, now: Duration) {
        match update {
            Update::Counters(counters) => self.live.add_counters(counters),
            Update::State(at, state) => {
                self.refused.remove(&state.resource());
                self.live.add_state(at, state);
            }
            Update::Refused(resource, reason) => drop(self.refused.insert(resource, reason)),
            Update::Lost(reason) => self.connection = Connection::Lost(reason),
            Update::Connected => self.connection = Connection::Restored(now),
        }
        if matches!(self.connection, Connection::Restored(since) if now.saturating_sub(since) >= RESTORED) {
            self.connection = Connection::Established;
        }
    }

    /// Applies a pressed key. `height` is the number of rows on the screen. The result is `Break` if the user
    /// quits.
    pub fn key(&mut self, key: KeyEvent, height: usize) -> ControlFlow<()> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        if self.editing {
            self.edit(key.code);
            return ControlFlow::Continue(());
        }
        match key.code {
            KeyCode::Char('q') => return ControlFlow::Break(()),
            KeyCode::Esc => return self.back(),
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Char(digit @ '1'..='7') => {
                let index = Page::ALL.iter().zip('1'..).find(|(_, key)| *key == digit);
                self.open(index.map_or(self.page, |(page, _)| *page));
            }
            KeyCode::Tab => self.open(Page::ALL[(self.page.index() + 1) % Page::ALL.len()]),
            KeyCode::BackTab => {
                self.open(Page::ALL[(self.page.index() + Page::ALL.len() - 1) % Page::ALL.len()]);
            }
            code if self.detail.is_some() => self.scroll_detail(code, height),
            code => self.table_key(code, height),
        }
        ControlFlow::Continue(())
    }

    /// Shows a page of the screen, and closes the details and the help.
    fn open(&mut self, page: Page) {
        self.page = page;
        self.refused.clear();
        self.detail = None;
        self.help = false;
    }

    /// Closes the help if it is shown, otherwise the details if they are shown, otherwise clears the filter. If none of
    /// them is active, the program quits.
    fn back(&mut self) -> ControlFlow<()> {
        if self.help {
            self.help = false;
        } else if self.detail.is_some() {
            self.detail = None;
        } else if !self.table().filter.is_empty() {
            self.table_mut().filter.clear();
        } else {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn pause(&mut self) {
        self.frozen = match self.frozen {
            Some(_) => None,
            None => Some(Box::new(self.live.clone())),
        };
    }

    fn edit(&mut self, code: KeyCode) {
        let filter = &mut self.table_mut().filter;
        match code {
            KeyCode::Char(character) => filter.push(character),
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Enter => self.editing = false,
            KeyCode::Esc => {
                filter.clear();
                self.editing = false;
            }
            _ => {}
        }
    }

    fn scroll_detail(&mut self, code: KeyCode, height: usize) {
        let offset = self.detail_offset;
        self.detail_offset = match code {
            KeyCode::Up | KeyCode::Char('k') => offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => offset + 1,
            KeyCode::PageUp => offset.saturating_sub(height),
            KeyCode::PageDown => offset + height,
            KeyCode::Home => 0,
            _ => offset,
        };
    }

    fn table_key(&mut self, code: KeyCode, height: usize) {
        match code {
            KeyCode::Char('/') => {
                self.editing = true;
                self.help = false;
            }
            KeyCode::Left | KeyCode::Char('<') => self.sort_by(-1),
            KeyCode::Right | KeyCode::Char('>') => self.sort_by(1),
            KeyCode::Char('r') => {
                let order = &mut self.table_mut().order;
                order.descending = !order.descending;
            }
            KeyCode::Enter => self.drill_down(),
            code => {
                let lines = self.lines();
                let (at, last) = (self.selected(&lines), lines.len().saturating_sub(1));
                let to = match code {
                    KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => at + 1,
                    KeyCode::PageUp => at.saturating_sub(height),
                    KeyCode::PageDown => at + height,
                    KeyCode::Home | KeyCode::Char('g') => 0,
                    KeyCode::End | KeyCode::Char('G') => last,
                    _ => return,
                }
                .min(last);
                let selected = lines.get(to).map(|line| line.key.clone());
                let table = self.table_mut();
                (table.selected, table.index) = (selected, to);
            }
        }
    }

    /// Sorts the rows by the next column (`step` 1) or the previous column (`step` -1). Numbers are
    /// sorted in descending order, and texts in alphabetical order.
    fn sort_by(&mut self, step: isize) {
        let columns = self.page.columns();
        let order = &mut self.table_mut().order;
        let next = order.column.checked_add_signed(step);
        let column = next.map_or(columns.len() - 1, |column| column % columns.len());
        *order = Order { column, descending: columns[column].kind != Kind::Text };
    }

    /// Shows the details of the selected row. The details of a port are a page about the port. The
    /// details of a bridge are the bridge's OpenFlow rules.
    fn drill_down(&mut self) {
        let lines = self.lines();
        let Some(key) = lines.get(self.selected(&lines)).map(|line| line.key.clone()) else { return };
        match self.page {
            Page::Ports => self.open_port(key),
            Page::Drops => self.open_port(pages::dropped_at(&key).to_owned()),
            Page::Bridges => {
                self.open(Page::Flows);
                self.table_mut().filter = key;
            }
            Page::Workers | Page::Flows | Page::Routers | Page::Filters => {}
        }
    }

    fn open_port(&mut self, port: String) {
        self.detail = Some(port);
        self.detail_offset = 0;
        self.help = false;
    }
}
