//! Dates and times as days or seconds since 1970-01-01, 00:00 UTC.

use super::cast::Number;

const SECONDS_PER_DAY: i128 = 86_400;

/// The form that dates or times are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Days,
    Seconds,
}

impl Time {
    /// The number for a time of `ticks` ticks. A day has `per_day` ticks. Days are whole numbers: a time of
    /// day is dropped.
    pub(super) fn number(self, ticks: i128, per_day: u64) -> Number {
        let per_day = i128::from(per_day);
        match self {
            Self::Days => Number::Whole(ticks.div_euclid(per_day)),
            // A tick is a whole number of seconds, or a second is a whole number of ticks.
            Self::Seconds if per_day < SECONDS_PER_DAY => Number::Whole(ticks * (SECONDS_PER_DAY / per_day)),
            Self::Seconds => match per_day / SECONDS_PER_DAY {
                per_second if ticks % per_second == 0 => Number::Whole(ticks / per_second),
                per_second => Number::Float(ratio(ticks, per_second)),
            },
        }
    }

    /// The number for a time in a text such as `2024-02-29`, `2024-02-29 13:45:10.25` or `2024-02-29T13:45Z`.
    /// The time is UTC, unless it ends with an offset such as `+02:00`.
    pub(super) fn parse(self, text: &[u8]) -> Option<Number> {
        let nanos = nanos(std::str::from_utf8(text).ok()?.trim_ascii())?;
        Some(self.number(nanos, 86_400_000_000_000))
    }
}

/// `ticks / per_second`. If the reduced numerator is below 2^53, it is the nearest `f64`. Otherwise it may
/// rarely be a neighbour of the nearest.
fn ratio(mut ticks: i128, mut per_second: i128) -> f64 {
    while ticks % 10 == 0 && per_second % 10 == 0 {
        (ticks, per_second) = (ticks / 10, per_second / 10);
    }
    if ticks.unsigned_abs() < 1 << 53 {
        return ticks as f64 / per_second as f64;
    }
    // Each part is exact, or far smaller than the last digit of the sum.
    (ticks / per_second) as f64 + (ticks % per_second) as f64 / per_second as f64
}

/// Nanoseconds since 1970-01-01, 00:00 UTC.
fn nanos(text: &str) -> Option<i128> {
    let (date, time) = text.split_at_checked(10)?;
    let digits = |text: &str, len: usize| {
        let is_number = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i128>().ok())?
    };
    let mut parts = date.split('-');
    let (year, month, day) =
        (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_day = (1..=12).contains(&month) && (1..=longest[month as usize - 1]).contains(&day);
    let days = is_day.then(|| days(year, month, day))?;
    if time.is_empty() {
        return Some(days * SECONDS_PER_DAY * 1_000_000_000);
    }
    let time = time.strip_prefix(['T', 't', ' '])?;
    let (time, offset) = match time.find(['Z', 'z', '+', '-']) {
        None => (time, 0),
        Some(at) => match time.split_at(at) {
            (time, "Z" | "z") => (time, 0),
            (time, zone) => {
                let (hours, minutes) = zone[1..].split_once(':')?;
                let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
                let minutes = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
                (time, if zone.starts_with('-') { -minutes } else { minutes })
            }
        },
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = clock.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| digits(second, 2))?;
    let fraction = digits(fraction, fraction.len()).filter(|_| (1..=9).contains(&fraction.len()))?
        * 10i128.pow(9 - fraction.len() as u32);
    let is_time = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    let seconds = days * SECONDS_PER_DAY + (hour * 60 + minute - offset) * 60 + second;
    is_time.then_some(seconds * 1_000_000_000 + fraction)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; the computation counts years from March on.
fn days(year: i128, month: i128, day: i128) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_times_that_they_name() {
        for (text, seconds) in [
            ("1970-01-01", Number::Whole(0)),
            ("2024-02-29", Number::Whole(1_709_164_800)),
            ("1899-12-31 23:59", Number::Whole(-2_208_988_860)),
            ("2024-02-29T13:45:10Z", Number::Whole(1_709_214_310)),
            ("2024-02-29T13:45:10.25+02:00", Number::Float(1_709_207_110.25)),
            ("0001-01-01", Number::Whole(-62_135_596_800)),
            ("9999-12-31 23:59:59", Number::Whole(253_402_300_799)),
        ] {
            assert_eq!(Time::Seconds.parse(text.as_bytes()), Some(seconds), "{text}");
        }
        assert_eq!(Time::Days.parse(b"1969-12-31T23:00"), Some(Number::Whole(-1)));
        for text in [
            "",
            "2024",
            "2023-02-29",
            "2024-13-01",
            "2024-1-1",
            "29.02.2024",
            "2024-02-29T24:00",
            "2024-02-29 1:00",
            "2024-02-29T10:00:00.",
            "2024-02-29T10:00:00:00",
            "2024-02-29x",
            "2024-02-29T10:00+2",
            "2024-02-29T10:00+24:00",
            "2024-02-29T10:00-01:60",
            "2024-02-29T10:00-02:60",
            "2024-02-29T10:00+99:99",
            "+024-02-29",
        ] {
            assert_eq!(Time::Days.parse(text.as_bytes()), None, "{text}");
        }
    }
}
