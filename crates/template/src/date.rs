//! Dates, as Python's `strftime` writes them.

use std::fmt::Write as _;

use super::value::{Raised, unsupported};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A date with a time, in the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Date {
    year: i64,
    month: usize,
    day: usize,
    hour: usize,
    minute: usize,
    second: usize,
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

impl Date {
    /// Parses `2026-03-05` or `2026-03-05T09:07:00`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
        let numbers = |text: &str, separator: char, widths: [usize; 3]| {
            let parts: Vec<&str> = text.split(separator).collect();
            let is_written = |(part, width): (&&str, usize)| {
                part.len() == width && part.bytes().all(|of| of.is_ascii_digit())
            };
            let all = parts.len() == 3 && parts.iter().zip(widths).all(is_written);
            let numbers: Vec<usize> = parts.iter().filter_map(|part| part.parse().ok()).collect();
            <[usize; 3]>::try_from(numbers).ok().filter(|_| all)
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let date = Self { year: i64::try_from(year).ok()?, month, day, hour, minute, second };
        let is_there = year > 0 && (1..=12).contains(&month) && day > 0 && day <= date.days_of(month);
        (is_there && hour < 24 && minute < 60 && second < 60).then_some(date)
    }

    fn days_of(&self, month: usize) -> usize {
        match month {
            2 if is_leap(self.year) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// The day of the year, from 1 on.
    fn of_year(&self) -> usize {
        (1..self.month).map(|month| self.days_of(month)).sum::<usize>() + self.day
    }

    /// The day of the week. 0 is Sunday.
    fn weekday(&self) -> usize {
        let years = self.year - 1;
        let days = years * 365 + years / 4 - years / 100 + years / 400 + self.of_year() as i64;
        (days % 7) as usize
    }

    /// The date in a format of `strftime`.
    pub(super) fn written(&self, format: &str) -> Result<String, Raised> {
        let mut to = String::new();
        let mut chars = format.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                to.push(char);
                continue;
            }
            let mut kind = chars.next();
            // A minus leaves out leading zeros.
            let is_plain = kind == Some('-');
            if is_plain {
                kind = chars.next();
            }
            let half = if self.hour.is_multiple_of(12) { 12 } else { self.hour % 12 };
            let number = match kind {
                Some('d') => Some((self.day, 2)),
                Some('m') => Some((self.month, 2)),
                Some('H') => Some((self.hour, 2)),
                Some('I') => Some((half, 2)),
                Some('M') => Some((self.minute, 2)),
                Some('S') => Some((self.second, 2)),
                Some('j') => Some((self.of_year(), 3)),
                Some('y') => Some(((self.year % 100) as usize, 2)),
                Some('Y') => Some((self.year as usize, 1)),
                _ => None,
            };
            if let Some((number, width)) = number {
                let width = if is_plain { 1 } else { width };
                _ = write!(to, "{number:0width$}");
                continue;
            }
            let (day, month) = (DAYS[self.weekday()], MONTHS[self.month - 1]);
            match kind.filter(|_| !is_plain) {
                Some('A') => to.push_str(day),
                Some('a') => to.push_str(&day[..3]),
                Some('B') => to.push_str(month),
                Some('b' | 'h') => to.push_str(&month[..3]),
                Some('p') => to.push_str(if self.hour < 12 { "AM" } else { "PM" }),
                Some('e') => _ = write!(to, "{:2}", self.day),
                Some('F') => to.push_str(&self.written("%Y-%m-%d")?),
                Some('T') => to.push_str(&self.written("%H:%M:%S")?),
                Some('D') => to.push_str(&self.written("%m/%d/%y")?),
                Some('R') => to.push_str(&self.written("%H:%M")?),
                Some('u') => _ = write!(to, "{}", (self.weekday() + 6) % 7 + 1),
                Some('w') => _ = write!(to, "{}", self.weekday()),
                Some('n') => to.push('\n'),
                Some('t') => to.push('\t'),
                Some('%') => to.push('%'),
                kind => {
                    let kind = kind.map(String::from).unwrap_or_default();
                    return unsupported(format!("%{kind} in a date is not read"));
                }
            }
        }
        Ok(to)
    }
}
