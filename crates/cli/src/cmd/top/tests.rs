//! Tests the screen of `trivium top` without a daemon. The tests supply recorded counters and states, press keys, and
//! compare the screen with a file.

use std::path::Path;
use std::time::Duration;

use model::{Counters, PortCounters, WorkerState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::feed::{Resource, State, Update};
use super::pages::Page;
use super::render;
use super::state::App;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the counters of three ports and two workers after `seconds` seconds. In each second, eth0 receives 1200
/// packets of 1000 bytes and drops 3 other packets. The received packets are sent on tap1.
fn counters(seconds: u64) -> Counters {
    let port = |rx: u64, tx: u64, drops: u64| PortCounters {
        rx_packets: rx * seconds,
        rx_bytes: rx * seconds * 1000,
        tx_packets: tx * seconds,
        tx_bytes: tx * seconds * 1000,
        drops: drops * seconds,
        rx_missed: 0,
    };
    let worker = |id: u16, busy: f64, packets: u64, queues: &[&str]| WorkerState {
        id,
        core: id + 2,
        busy,
        sleeping: busy == 0.0,
        bursts: packets / 8 * seconds,
        packets: packets * seconds,
        sleeps: 50 * seconds,
        handed_over: 0,
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
    };
    Counters {
        at_ns: seconds * 1_000_000_000,
        ports: [("eth0", port(1200, 0, 3)), ("tap1", port(0, 1200, 0)), ("tap10", port(0, 0, 0))]
            .map(|(name, port)| (name.to_owned(), port))
            .into(),
        workers: vec![
            worker(0, 0.625, 1200, &["eth0/0", "tap1/0"]),
            worker(1, 0.0, 0, &["eth0/1", "tap10/0"]),
        ],
        drops: [("no-member".to_owned(), 3 * seconds)].into(),
    }
}

fn port(name: &str, kind: &str, up: bool) -> Value {
    json!({
        "name": name, "id": 1, "kind": kind, "owner": "file", "device": name, "queues": 1, "mtu": 1500,
        "admin_up": true, "link_up": up, "bridge": "br0", "counters": PortCounters::default(),
        "reasons": ["the driver veth has no zero copy"],
    })
}

/// Returns the states of ports, bridges, flows and other objects after `seconds` seconds, in the form in which the API
/// returns them.
fn states(seconds: u64) -> Vec<State> {
    let drop = |port: &str, reason: &str, packets: u64| json!({"port": port, "reason": reason, "packets": packets, "explanation": format!("Why {reason}.")});
    let member = |port: &str| json!({"port": port, "owner": "file", "vlans": "access 10", "protected": false, "macs": 1});
    let flow = |table: u8, matches: &str, packets: u64| {
        json!({
            "bridge": "br0", "table": table, "priority": 100, "cookie": 0, "match": matches,
            "actions": "output:2", "packets": packets * seconds, "bytes": packets * seconds * 500, "age_ms": 0,
            "idle_ms": 0, "idle_timeout": 0, "hard_timeout": 0, "importance": 0,
        })
    };
    let rule = |name: &str, dry_run: bool, packets: u64| {
        json!({
            "name": name, "priority": 10, "action": "drop", "dry_run": dry_run, "packets": packets * seconds,
            "bytes": packets * seconds * 64, "acted_packets": packets * seconds, "acted_bytes": 0,
        })
    };
    let router = json!({
        "name": "core", "owner": "file", "routes4": 950_000, "routes6": 12, "routes_limit": 2_000_000,
        "neighbours": 7, "neighbours_limit": 1000, "tables": 2, "rules": 0, "in_step": true, "events": 5,
        "overruns": 0, "resyncs": 1, "resync_ms": 3, "drifted": 0, "refused": 0,
        "punts": [{"class": "arp", "limit": 100, "packets": 4 * seconds, "refused": 0}],
        "interfaces": [{"port": "eth0", "owner": "file", "device": "eth0", "index": 3, "mtu": 1500, "up": true, "miss": "unreachable"}],
    });
    let bridge = json!({
        "name": "br0", "id": 0, "owner": "file", "macs": 42, "mac_limit": 8192, "ageing": 300, "snooping": false,
        "counts": {"learned": 2 * seconds, "expired": 0, "evicted": 0, "moved": 0},
        "members": [member("eth0"), member("tap1"), member("tap10")],
    });
    let caches = json!({
        "workers": [{"worker": 0, "flows": 30, "masks": 2, "exact_hits": 900 * seconds, "masked_hits": 95 * seconds,
            "misses": 5 * seconds, "probes": 0, "memory": 0}],
        "slow_path": {"flows": 30, "limit": 200_000, "upcalls": 5 * seconds, "revalidated": 0, "round_us": 0,
            "narrowed": 0, "wrong": 0},
        "memory": [],
    });
    vec![
        State::Ports(read(json!([
            port("eth0", "af_xdp", true),
            port("tap1", "tap", true),
            port("tap10", "tap", false)
        ]))),
        State::Drops(read(json!([
            drop("eth0", "no-member", 3 * seconds),
            drop("eth0", "rx-ring-full", 7),
            drop("tap1", "port-down", 0)
        ]))),
        State::Bridges(read(json!([bridge]))),
        State::Flows(read(json!([
            flow(0, "in_port=1,tcp", 20),
            flow(0, "", 1),
            flow(7, "ip,nw_dst=10.0.0.0/8", 300)
        ]))),
        State::Caches(read(caches)),
        State::Routers(read(json!([router]))),
        State::Filters(read(json!([{"name": "edge", "owner": "file", "ports": ["eth0"],
            "rules": [rule("flood", false, 4000), rule("trial", true, 1)]}]))),
    ]
}

/// Returns the state of the screen after the data of the seconds 1 to `seconds` was supplied.
fn app(seconds: u64) -> App {
    let mut app = App::default();
    for at in 1..=seconds {
        go_on(&mut app, at);
    }
    app
}

/// Supplies the counters and states of the second `at` to the screen.
fn go_on(app: &mut App, at: u64) {
    app.update(Update::Counters(counters(at)), second(at));
    for state in states(at) {
        app.update(Update::State(second(at), state), second(at));
    }
}

fn press(app: &mut App, code: KeyCode) -> bool {
    app.key(KeyEvent::new(code, KeyModifiers::NONE), 10).is_break()
}

fn type_text(app: &mut App, text: &str) {
    for character in text.chars() {
        assert!(!press(app, KeyCode::Char(character)), "{text}: the view has ended");
    }
}

/// Returns the screen as text, without spaces at the ends of lines.
fn screen(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| render::draw(frame, app)).unwrap();
    text_of(&terminal)
}

fn text_of(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(buffer.area.width));
    let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    rows.map(|row| line(row).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Returns the keys of the shown rows from top to bottom.
fn keys(app: &App) -> Vec<&str> {
    app.lines().iter().map(|line| line.key.as_str()).collect()
}

/// Compares a screen with the file `screens/NAME.txt`. With UPDATE=1 in the environment, the function writes the
/// file, which must be reviewed before it is committed.
fn compare(app: &mut App, name: &str, width: u16, height: u16) {
    let name = format!("{name}-{width}x{height}");
    // `file!` begins at the root of the workspace.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file!());
    let path = source.with_file_name("screens").join(format!("{name}.txt"));
    let drawn = screen(app, width, height) + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(drawn == expected, "{name} differs from {}:\n{drawn}", path.display());
}

#[test]
fn every_page_is_drawn_at_both_sizes() {
    for (width, height) in [(80, 24), (120, 40)] {
        let mut app = app(12);
        for (page, key) in Page::ALL.into_iter().zip('1'..) {
            assert!(!press(&mut app, KeyCode::Char(key)));
            assert_eq!(app.page, page);
            compare(&mut app, page.name(), width, height);
        }
        press(&mut app, KeyCode::Char('1'));
        press(&mut app, KeyCode::Enter);
        compare(&mut app, "port-details", width, height);
        press(&mut app, KeyCode::Char('?'));
        compare(&mut app, "keys", width, height);
    }
}

#[test]
fn pages_without_rows_say_so() {
    let mut waiting = App::default();
    for key in '1'..='7' {
        press(&mut waiting, KeyCode::Char(key));
        assert!(screen(&mut waiting, 80, 24).contains("\nwaiting for the daemon\n"), "page {key}");
    }
    let mut empty = App::default();
    empty.update(Update::Counters(Counters::default()), second(1));
    for state in [
        State::Drops(Vec::new()),
        State::Bridges(Vec::new()),
        State::Flows(Vec::new()),
        State::Routers(Vec::new()),
        State::Filters(Vec::new()),
    ] {
        empty.update(Update::State(second(1), state), second(1));
    }
    let words =
        ["no port", "no worker", "no bridge", "no rule", "no router", "no rule", "nothing was dropped"];
    for (key, words) in ('1'..='7').zip(words) {
        press(&mut empty, KeyCode::Char(key));
        let drawn = screen(&mut empty, 80, 24);
        assert!(drawn.contains(&format!("{words}\n")), "{drawn}");
    }
}

#[test]
fn a_text_filters_the_rows() {
    let mut app = app(3);
    type_text(&mut app, "/TAP");
    let drawn = screen(&mut app, 80, 24);
    assert!(drawn.contains("2 of 3 ports with \"TAP\"") && drawn.contains("\nfilter: TAP_\n"), "{drawn}");
    assert!(!drawn.contains("\neth0"), "{drawn}");
    // While the user types the filter, keys have no other meaning.
    type_text(&mut app, "1q");
    assert_eq!((app.table().filter.as_str(), app.page), ("TAP1q", Page::Ports));
    assert!(screen(&mut app, 80, 24).contains("no port contains \"TAP1q\""));
    press(&mut app, KeyCode::Backspace);
    press(&mut app, KeyCode::Enter);
    assert_eq!(keys(&app), ["tap1", "tap10"]);
    // Each page has its own filter.
    press(&mut app, KeyCode::Char('7'));
    assert_eq!(keys(&app), ["eth0 no-member", "eth0 rx-ring-full"]);
    press(&mut app, KeyCode::Char('1'));
    assert!(!press(&mut app, KeyCode::Esc), "Esc removes the filter");
    assert_eq!(keys(&app), ["eth0", "tap1", "tap10"]);
    assert!(press(&mut app, KeyCode::Esc), "Esc quits a view without a filter");
}

#[test]
fn keys_choose_the_column_and_the_direction_of_the_order() {
    let mut app = app(3);
    let heading = |app: &mut App| {
        let drawn = screen(app, 80, 24);
        let headings = drawn.lines().nth(2).unwrap();
        // A heading with a unit is one word here.
        let words = headings.replace(" p/s", "_p/s").replace(" bit/s", "_bit/s");
        words.split(' ').find(|word| word.ends_with(['▲', '▼'])).unwrap().replace('_', " ")
    };
    assert_eq!(heading(&mut app), "PORT▲");
    assert_eq!(keys(&app), ["eth0", "tap1", "tap10"]);
    // The sort column changes from the name via the state to the received packets per second.
    press(&mut app, KeyCode::Right);
    press(&mut app, KeyCode::Char('>'));
    assert_eq!(heading(&mut app), "RX p/s▼");
    assert_eq!(keys(&app), ["eth0", "tap1", "tap10"]);
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(keys(&app), ["tap1", "tap10", "eth0"]);
    press(&mut app, KeyCode::Right);
    press(&mut app, KeyCode::Right);
    assert_eq!(heading(&mut app), "TX p/s▼");
    assert_eq!(keys(&app), ["tap1", "eth0", "tap10"]);
    for _ in 0..4 {
        press(&mut app, KeyCode::Char('<'));
    }
    assert_eq!(heading(&mut app), "PORT▲");
    press(&mut app, KeyCode::Left);
    assert_eq!(heading(&mut app), "DROPS/s▼");
    // Each page has its own sort order.
    press(&mut app, KeyCode::Char('4'));
    assert_eq!(app.table().order, Page::Flows.order());
}

#[test]
fn a_paused_view_does_not_change() {
    let mut app = app(3);
    press(&mut app, KeyCode::Char('p'));
    let before = screen(&mut app, 80, 24);
    assert!(before.lines().nth(1).unwrap().ends_with(" PAUSED"), "{before}");
    let mut counters = counters(4);
    counters.ports.insert("tap2".to_owned(), PortCounters::default());
    app.update(Update::Counters(counters.clone()), second(4));
    assert_eq!(screen(&mut app, 80, 24), before);
    press(&mut app, KeyCode::Char('p'));
    let after = screen(&mut app, 80, 24);
    assert!(after.contains("\ntap2 ") && !after.contains("PAUSED"), "{after}");
    // The rates from the time of the pause are part of the history, too.
    counters.at_ns += 1_000_000_000;
    app.update(Update::Counters(counters), second(5));
    let history = app.readings().sheet(Page::Ports).line("eth0").unwrap().history(&[2]);
    assert_eq!(history, [1200.0, 1200.0, 1200.0, 0.0]);
}

#[test]
fn many_ports_are_scrolled_and_a_new_size_keeps_the_selected_row() {
    let mut app = App::default();
    let ports = (1..=200).map(|number| (format!("v{number}"), PortCounters::default())).collect();
    app.update(Update::Counters(Counters { ports, ..Counters::default() }), second(1));
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut draw = |app: &mut App, size: Option<(u16, u16)>| {
        if let Some((width, height)) = size {
            terminal.backend_mut().resize(width, height);
        }
        terminal.draw(|frame| render::draw(frame, app)).unwrap();
        text_of(&terminal)
    };
    let first = draw(&mut app, None);
    assert!(first.contains("\nv1 ") && first.contains("\nv19 ") && !first.contains("\nv20 "), "{first}");
    press(&mut app, KeyCode::End);
    let last = draw(&mut app, None);
    assert!(last.contains("\nv200 ") && last.contains("\nv182 ") && !last.contains("\nv181 "), "{last}");
    press(&mut app, KeyCode::PageUp);
    for _ in 0..20 {
        press(&mut app, KeyCode::Up);
    }
    let above = draw(&mut app, None);
    assert!(above.contains("\nv170 ") && !above.contains("\nv169 "), "{above}");
    let small = draw(&mut app, Some((40, 8)));
    assert!(small.contains("\nv170") && !small.contains("\nv169"), "{small}");
    let large = draw(&mut app, Some((120, 40)));
    assert!(large.contains("\nv170 ") && large.lines().count() == 40, "{large}");
    let tiny = draw(&mut app, Some((20, 3)));
    assert!(tiny.starts_with("the terminal is smal"), "{tiny}");
}

#[test]
fn the_selection_follows_its_row_through_a_new_order() {
    let mut app = app(3);
    press(&mut app, KeyCode::Down);
    let selected = |app: &App| {
        let lines = app.lines();
        lines[app.selected(&lines)].key.clone()
    };
    assert_eq!(selected(&app), "tap1");
    press(&mut app, KeyCode::Char('r'));
    press(&mut app, KeyCode::Up);
    assert_eq!(selected(&app), "tap10");
    // If the selected row disappears, the row that takes its place is selected.
    let mut without = counters(4);
    without.ports.remove("tap10");
    app.update(Update::Counters(without), second(4));
    assert_eq!(selected(&app), "tap1");
}

#[test]
fn enter_shows_details_and_escape_returns() {
    let mut app = app(3);
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.detail.as_deref(), Some("tap1"));
    assert_eq!(app.resources(), [Resource::Ports, Resource::Drops]);
    let drawn = screen(&mut app, 80, 24);
    assert!(drawn.contains("port tap1: up, tap, device tap1, bridge br0"), "{drawn}");
    assert!(!press(&mut app, KeyCode::Esc));
    assert_eq!(app.detail, None);
    // The details of a drop are the details of the port at which the packets arrived.
    type_text(&mut app, "7");
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.detail.as_deref(), Some("eth0"));
    let drawn = screen(&mut app, 80, 24);
    assert!(drawn.contains("no-member") && drawn.contains("rx-ring-full"), "{drawn}");
    // The details of a bridge are the bridge's OpenFlow rules.
    type_text(&mut app, "3");
    assert_eq!(app.detail, None);
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.page, app.table().filter.as_str()), (Page::Flows, "br0"));
    assert_eq!(app.resources(), [Resource::Flows, Resource::Caches]);
    type_text(&mut app, "2");
    assert!(app.resources().is_empty(), "the stream contains the workers");
}

#[test]
fn details_of_many_queues_scroll_to_the_last() {
    let mut app = app(2);
    let mut more = counters(3);
    more.workers[0].queues = (0..64).map(|queue| format!("eth0/{queue}")).collect();
    app.update(Update::Counters(more), second(3));
    press(&mut app, KeyCode::Enter);
    assert!(!screen(&mut app, 80, 24).contains(" 63 "));
    for _ in 0..20 {
        press(&mut app, KeyCode::PageDown);
    }
    let drawn = screen(&mut app, 80, 24);
    assert!(drawn.contains(" 63 "), "{drawn}");
    let offset = app.detail_offset;
    press(&mut app, KeyCode::Up);
    assert_eq!(app.detail_offset, offset - 1, "the view scrolls back at once");
}

#[test]
fn a_lost_connection_is_shown_until_the_daemon_answers_again() {
    let mut app = app(3);
    app.update(Update::Lost("the daemon has ended or is being replaced".to_owned()), second(4));
    let lost = screen(&mut app, 80, 24);
    assert!(
        lost.contains("\nno connection: the daemon has ended or is being replaced; connecting again"),
        "{lost}"
    );
    assert!(lost.contains("\neth0 "), "the last values stay: {lost}");
    app.update(Update::Connected, second(10));
    // The new daemon counts from 0.
    app.update(Update::Counters(counters(0)), second(10));
    assert!(screen(&mut app, 80, 24).contains("\nconnected to the daemon again\n"));
    let line = |app: &App| app.readings().sheet(Page::Ports).line("eth0").unwrap().values[2].number();
    assert_eq!(line(&app), None);
    app.update(Update::Counters(counters(1)), second(16));
    assert_eq!(line(&app), Some(1200.0));
    assert!(screen(&mut app, 80, 24).contains("\n3 ports, RX 1.20k p/s"));
}

#[test]
fn a_refusal_of_the_daemon_is_shown() {
    let mut app = app(3);
    app.update(Update::Refused(Resource::Drops, "api: the token is missing".to_owned()), second(4));
    assert!(screen(&mut app, 80, 24).contains("\napi: the token is missing\n"));
    // Another state does not hide the reason.
    app.update(Update::State(second(5), State::Ports(Vec::new())), second(5));
    assert!(screen(&mut app, 80, 24).contains("\napi: the token is missing\n"));
    app.update(Update::State(second(5), State::Drops(Vec::new())), second(5));
    assert!(!screen(&mut app, 80, 24).contains("token"));
}

#[test]
fn tab_goes_through_all_pages_and_control_c_quits() {
    let mut app = app(2);
    let mut seen = Vec::new();
    for _ in Page::ALL {
        seen.push(app.page);
        press(&mut app, KeyCode::Tab);
    }
    assert_eq!((seen.as_slice(), app.page), (&Page::ALL[..], Page::Ports));
    press(&mut app, KeyCode::BackTab);
    assert_eq!(app.page, Page::Drops);
    press(&mut app, KeyCode::Char('?'));
    assert!(screen(&mut app, 80, 24).contains("reverse the order"));
    assert!(!press(&mut app, KeyCode::Esc), "Esc leaves the list of keys");
    type_text(&mut app, "/c");
    assert!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 10).is_break());
    press(&mut app, KeyCode::Enter);
    assert!(press(&mut app, KeyCode::Char('q')));
}

#[test]
fn any_keys_leave_a_view_that_can_be_drawn() {
    let codes = [
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::F(1),
        KeyCode::Char('/'),
        KeyCode::Char('r'),
        KeyCode::Char('p'),
        KeyCode::Char('?'),
        KeyCode::Char('1'),
        KeyCode::Char('3'),
        KeyCode::Char('4'),
        KeyCode::Char('7'),
        KeyCode::Char('é'),
    ];
    let mut app = app(2);
    // A linear congruential generator makes the run repeatable.
    let mut random = 1_u64;
    for step in 3..3000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let code = codes[usize::try_from(random >> 33).unwrap() % codes.len()];
        let _ = press(&mut app, code);
        if step % 50 == 0 {
            go_on(&mut app, step);
            let (width, height) = if step % 100 == 0 { (80, 24) } else { (41, 9) };
            screen(&mut app, width, height);
        }
    }
}
