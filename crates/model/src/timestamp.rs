//! Timestamps (RFC 3339), in the text form that configuration files and API requests use.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Error for a text that is not a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is not a time such as 2030-01-31T23:59:59Z")]
pub struct TimestampError;

/// A UTC timestamp in seconds since 1970, written in RFC 3339 format with `Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timestamp(pub u64);

const DAY: u64 = 86_400;

/// Returns the number of days from 1970-01-01 to a day of the Gregorian calendar. The day must not be earlier
/// than 1970-01-01.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years start in March, so that a leap day is the last day of a year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

fn month_length(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Timestamp, TimestampError> {
        let bytes = text.as_bytes();
        let fixed = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
        if bytes.len() != 20 || fixed.iter().any(|(at, byte)| bytes[*at] != *byte) {
            return Err(TimestampError);
        }
        let number = |from: usize, to: usize| -> Result<u64, TimestampError> {
            let digits = text.get(from..to).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
            digits.and_then(|digits| digits.parse().ok()).ok_or(TimestampError)
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let possible = year >= 1970
            && (1..=12).contains(&month)
            && (1..=month_length(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !possible {
            return Err(TimestampError);
        }
        Ok(Timestamp(days(year, month, day) * DAY + hour * 3600 + minute * 60 + second))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut day, rest) = (self.0 / DAY, self.0 % DAY);
        let mut year = 1970 + day / 366;
        while days(year + 1, 1, 1) <= day {
            year += 1;
        }
        day -= days(year, 1, 1);
        let mut month = 1;
        while day >= month_length(year, month) {
            day -= month_length(year, month);
            month += 1;
        }
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-11-21T06:30:00Z", 1_795_242_600),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ];
        for (text, seconds) in cases {
            assert_eq!(text.parse(), Ok(Timestamp(seconds)), "{text}");
        }
        for bad in
            ["2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01", "1969-12-31T23:59:59Z", "tomorrow"]
        {
            assert_eq!(bad.parse::<Timestamp>(), Err(TimestampError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn moments_survive_being_written(seconds in 0..253_402_300_800_u64) {
            prop_assert_eq!(Timestamp(seconds).to_string().parse(), Ok(Timestamp(seconds)));
        }
    }
}
