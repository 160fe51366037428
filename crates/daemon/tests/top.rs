//! Tests `trivium top` in a pseudo-terminal with a real daemon. The tests press keys, change the terminal size, upgrade
//! the daemon, and end it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{eventually, require};

/// Screen of a terminal, computed from the output of a program. Only the control sequences that crossterm writes are
/// interpreted.
#[derive(Default)]
struct Screen {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    fn put(&mut self, character: char) {
        match character {
            '\r' => self.column = 0,
            '\n' => self.row += 1,
            _ => {
                if self.cells.len() <= self.row {
                    self.cells.resize(self.row + 1, Vec::new());
                }
                let line = &mut self.cells[self.row];
                if line.len() <= self.column {
                    line.resize(self.column + 1, ' ');
                }
                line[self.column] = character;
                self.column += 1;
            }
        }
    }

    /// Executes the sequence `ESC [ PARAMETERS END` (ECMA-48).
    fn control(&mut self, parameters: &str, end: char) {
        let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1_usize));
        let mut next = || numbers.next().unwrap_or(1);
        match end {
            'H' => (self.row, self.column) = (next() - 1, next() - 1),
            'J' => self.cells.clear(),
            'h' if parameters == "?1049" => self.cells.clear(),
            _ => {}
        }
    }

    fn text(&self) -> String {
        let lines = self.cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Reads UTF-8 characters until the end of `from`, and applies them to the screen.
fn show(from: impl BufRead, screen: &Mutex<Screen>) {
    let mut bytes = from.bytes().map_while(Result::ok);
    let mut next = move || {
        let first = bytes.next()?;
        let more = match first {
            0xf0.. => 3,
            0xe0.. => 2,
            0xc0.. => 1,
            _ => 0,
        };
        let whole: Vec<u8> = std::iter::once(first).chain(bytes.by_ref().take(more)).collect();
        String::from_utf8_lossy(&whole).chars().next()
    };
    while let Some(character) = next() {
        if character != '\x1b' {
            screen.lock().unwrap().put(character);
            continue;
        }
        if next() != Some('[') {
            continue;
        }
        let mut parameters = String::new();
        let end = loop {
            match next() {
                Some(end @ '@'..='~') => break end,
                Some(parameter) => parameters.push(parameter),
                None => return,
            }
        };
        screen.lock().unwrap().control(&parameters, end);
    }
}

/// `trivium top` in a pseudo-terminal that script(1) creates.
struct Top {
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Screen>>,
    reader: Option<JoinHandle<()>>,
    /// Path of the terminal.
    terminal: String,
}

impl Top {
    /// Starts `trivium top` in a terminal of 80 columns and 24 rows.
    fn start(rig: &Rig) -> Top {
        let name = rig.path("terminal");
        let line = format!("tty > {name:?}; stty rows 24 cols 80; exec {TRIVIUM:?} top");
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-f", "-c", &line, "/dev/null"]).env("TRIVIUM_SOCKET", rig.socket());
        command.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().unwrap();
        let screen = Arc::<Mutex<Screen>>::default();
        let (from, shown) = (script.stdout.take().unwrap(), Arc::clone(&screen));
        let reader = std::thread::spawn(move || show(BufReader::new(from), &shown));
        let keys = script.stdin.take().unwrap();
        let terminal = eventually("the name of the terminal", PATIENCE, || {
            let text = std::fs::read_to_string(&name).unwrap_or_default();
            if text.ends_with('\n') { Ok(text.trim().to_owned()) } else { Err(text) }
        });
        Top { script, keys, screen, reader: Some(reader), terminal: terminal.unwrap() }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Changes the size of the terminal, which sends SIGWINCH to the program.
    fn resize(&self, rows: u16, columns: u16) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let line = ["-F", &self.terminal, "rows", &rows, "cols", &columns];
        assert!(Command::new("stty").args(line).status().unwrap().success());
    }

    /// Waits until the screen contains all texts, and returns the screen.
    fn wait_for(&self, texts: &[&str]) -> String {
        eventually(&format!("a screen with {texts:?}"), PATIENCE, || {
            let screen = self.screen.lock().unwrap().text();
            if texts.iter().all(|text| screen.contains(text)) {
                Ok(screen)
            } else {
                Err(format!("\n{screen}"))
            }
        })
        .unwrap()
    }

    /// Waits for the end of the program, and checks that the program was successful.
    fn finish(mut self) {
        let status = eventually("the end of top", PATIENCE, || {
            self.script.try_wait().unwrap().ok_or_else(|| self.screen.lock().unwrap().text())
        });
        assert!(status.unwrap().success());
        self.reader.take().unwrap().join().unwrap();
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn top_shows_its_pages_in_a_terminal_and_connects_again() {
    require!("ip", "ping", "ethtool", "script", "stty");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let pinging = rig.hosts[0].spawn(["ping", "-n", "-q", "-i", "0.01", rig.hosts[1].ip()]).unwrap();
    let mut top = Top::start(&rig);
    let ports = top.wait_for(&["2 ports, RX ", "\nh1    up ", "\nh2    up ", "q: quit"]);
    assert_eq!(ports.lines().count(), 24, "{ports}");

    top.press("2");
    top.wait_for(&["CORE STATE", "\nworker 0: h1/0 h2/0"]);
    top.press("3");
    top.wait_for(&["LEARNED/s", "\nbr0 "]);
    top.press("5");
    top.wait_for(&["ROUTES4", "there is no router"]);
    top.press("1/h2\r");
    let filtered = top.wait_for(&["1 of 2 ports with \"h2\"", "\nh2 "]);
    assert!(!filtered.contains("\nh1 "), "{filtered}");
    top.press("\r");
    top.wait_for(&["port h2: up, af_xdp, device h2, bridge br0", "DROP REASON", "QUEUE"]);
    top.resize(40, 120);
    let large = eventually("a screen of 40 lines", PATIENCE, || {
        let screen = top.wait_for(&["port h2: up"]);
        // The terminal may have shown only a part of the new screen.
        let is_whole = screen.lines().count() == 40 && screen.ends_with("q: quit");
        if is_whole { Ok(()) } else { Err(screen) }
    });
    large.unwrap();
    top.press("1\x1b");

    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    top.wait_for(&["connected to the daemon again"]);
    top.wait_for(&["2 ports, RX ", "\nh1 "]);
    drop(pinging);
    rig.ok(&["stop"]);
    top.wait_for(&["no connection: "]);
    rig.start(&configuration);
    top.wait_for(&["connected to the daemon again"]);
    top.press("q");
    top.finish();
}
