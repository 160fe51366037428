//! Formatting of log lines according to patterns (ovs-appctl(8), `vlog/set PATTERN:`), and of dates in log lines.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Values of a log message that a pattern can insert into a log line.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Sequence number of the message in this process, from 1.
    pub number: u64,
    /// Name of the Open vSwitch module to which the message belongs.
    pub module: &'a str,
    /// Name of the message's log level.
    pub level: &'a str,
    /// Name of the thread, empty for the main thread.
    pub thread: &'a str,
    /// Text of the message.
    pub message: &'a str,
    /// Wall-clock time of the message.
    pub time: SystemTime,
    /// Time from the start of the process to the message.
    pub uptime: Duration,
}

/// Formats a log line according to a pattern. In the pattern, `%` and a letter represent one value of `parts`.
pub fn line(pattern: &str, parts: &Parts<'_>) -> String {
    let mut line = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(letter) = rest.next() {
        if letter != '%' {
            line.push(letter);
            continue;
        }
        let left = rest.next_if_eq(&'-').is_some();
        let zero = rest.next_if_eq(&'0').is_some();
        let mut width = 0_usize;
        while let Some(digit) = rest.peek().and_then(|letter| letter.to_digit(10)) {
            width = (width * 10).saturating_add(digit as usize).min(80);
            rest.next();
        }
        let Some(letter) = rest.next() else { break };
        let argument = rest.next_if_eq(&'{').map(|_| {
            let mut text = String::new();
            for letter in rest.by_ref() {
                if letter == '}' {
                    break;
                }
                text.push(letter);
            }
            text
        });
        let field = match letter {
            'A' => "ovs-vswitchd".to_owned(),
            'c' => parts.module.to_owned(),
            'd' | 'D' => date(argument.as_deref().unwrap_or("%Y-%m-%d %H:%M:%S.###"), parts.time),
            'E' => hostname(),
            'm' => parts.message.to_owned(),
            'n' => "\n".to_owned(),
            'N' => parts.number.to_string(),
            'p' => parts.level.to_owned(),
            'P' => std::process::id().to_string(),
            'r' => parts.uptime.as_millis().to_string(),
            't' if parts.thread.is_empty() => "main".to_owned(),
            't' => parts.thread.to_owned(),
            'T' if parts.thread.is_empty() => String::new(),
            'T' => format!("({})", parts.thread),
            other => other.to_string(),
        };
        // Writing to a string cannot fail.
        let _ = match (left, zero) {
            (true, _) => write!(line, "{field:<width$}"),
            (false, true) => write!(line, "{field:0>width$}"),
            (false, false) => write!(line, "{field:>width$}"),
        };
    }
    line
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim_end().to_owned()
}

/// Formats a time in UTC according to a strftime(3) format. Each `#` in the format represents one digit of the fraction
/// of the second.
fn date(format: &str, time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let name = |names: &[&'static str], at: u64| {
        usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or("?")
    };
    let fraction = format!("{:09}", since.subsec_nanos());
    let mut fraction = fraction.chars();
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        let _ = match letter {
            '#' => write!(text, "{}", fraction.next().unwrap_or('0')),
            '%' => match letters.next() {
                Some('Y') => write!(text, "{year}"),
                Some('y') => write!(text, "{:02}", year % 100),
                Some('m') => write!(text, "{month:02}"),
                Some('d') => write!(text, "{day:02}"),
                Some('e') => write!(text, "{day:2}"),
                Some('H') => write!(text, "{hour:02}"),
                Some('M') => write!(text, "{minute:02}"),
                Some('S') => write!(text, "{second:02}"),
                Some('F') => write!(text, "{year}-{month:02}-{day:02}"),
                Some('T') => write!(text, "{hour:02}:{minute:02}:{second:02}"),
                Some('s') => write!(text, "{}", since.as_secs()),
                Some('b' | 'h') => write!(text, "{}", name(&MONTHS, month - 1)),
                Some('a') => write!(text, "{}", name(&DAYS, days % 7)),
                Some('Z') => write!(text, "UTC"),
                Some(other) => write!(text, "{other}"),
                None => Ok(()),
            },
            other => write!(text, "{other}"),
        };
    }
    text
}

/// Converts a number of days since 1970-01-01 into year, month (from 1) and day (from 1) of the Gregorian
/// calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that a leap day is the last day of its year. An era has 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_open_vswitch_writes() {
        let parts = Parts {
            number: 7,
            module: "vlog",
            level: "INFO",
            thread: "",
            message: "opened log file /x",
            time: UNIX_EPOCH + Duration::from_millis(1_709_210_096_045),
            uptime: Duration::from_millis(12),
        };
        let pattern = "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m";
        let usual = "2024-02-29T12:34:56.045Z|00007|vlog|INFO|opened log file /x";
        assert_eq!(line(pattern, &parts), usual);
        let of_thread = Parts { thread: "slow-path", ..parts };
        assert_eq!(
            line("%c%T %-6p|%6p|%r %D{%h %e %T %a}", &of_thread),
            "vlog(slow-path) INFO  |  INFO|12 Feb 29 12:34:56 Thu"
        );
        assert_eq!(line("100%% %", &parts), "100% ");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in
            [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (20_819, (2027, 1, 1))]
        {
            assert_eq!(civil(days), date);
        }
    }
}
