//! Dates, as Python's `strftime` writes them.

use super::value::{Evaluated, unsupported};

const DAYS: &str = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday";
const MONTHS: &str = "January February March April May June July August September October November December";

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
        let numbers = |text: &str, separator: char, widths: [usize; 3]| -> Option<[usize; 3]> {
            let parts: Vec<&str> = text.split(separator).collect();
            let is_plain = parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
            let is_written = is_plain && parts.iter().map(|part| part.len()).eq(widths);
            let numbers: Vec<usize> = parts.iter().filter_map(|part| part.parse().ok()).collect();
            numbers.try_into().ok().filter(|_| is_written)
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
    pub(super) fn written(&self, format: &str) -> Evaluated<String> {
        let mut to = String::new();
        let mut chars = format.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                to.push(char);
                continue;
            }
            // A minus leaves out leading zeros.
            let (is_plain, kind) = match chars.next() {
                Some('-') => (true, chars.next()),
                kind => (false, kind),
            };
            let number = |number: usize, width: usize| match is_plain {
                true => number.to_string(),
                false => format!("{number:0width$}"),
            };
            let name = |names: &str, at: usize| names.split(' ').nth(at).unwrap_or_default().to_owned();
            to += &match kind {
                Some('d') => number(self.day, 2),
                Some('m') => number(self.month, 2),
                Some('H') => number(self.hour, 2),
                Some('I') => number((self.hour + 11) % 12 + 1, 2),
                Some('M') => number(self.minute, 2),
                Some('S') => number(self.second, 2),
                Some('j') => number(self.of_year(), 3),
                Some('y') => number((self.year % 100) as usize, 2),
                Some('Y') => number(self.year as usize, 1),
                _ if is_plain => return unsupported("% in a date is not read"),
                Some('A') => name(DAYS, self.weekday()),
                Some('a') => name(DAYS, self.weekday())[..3].to_owned(),
                Some('B') => name(MONTHS, self.month - 1),
                Some('b' | 'h') => name(MONTHS, self.month - 1)[..3].to_owned(),
                Some('p') => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
                Some('e') => format!("{:2}", self.day),
                Some('F') => self.written("%Y-%m-%d")?,
                Some('T') => self.written("%H:%M:%S")?,
                Some('D') => self.written("%m/%d/%y")?,
                Some('R') => self.written("%H:%M")?,
                Some('u') => ((self.weekday() + 6) % 7 + 1).to_string(),
                Some('w') => self.weekday().to_string(),
                Some('n') => "\n".to_owned(),
                Some('t') => "\t".to_owned(),
                Some('%') => "%".to_owned(),
                kind => {
                    let kind = kind.map(String::from).unwrap_or_default();
                    return unsupported(format!("%{kind} in a date is not read"));
                }
            };
        }
        Ok(to)
    }
}
