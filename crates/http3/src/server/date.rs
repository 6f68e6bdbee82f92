//! The value of the Date field in responses.

use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Last second of the year 9999, in seconds since 1970. The date format has no later years.
const LAST: u64 = 253_402_300_799;

/// Returns the current time as the value of a Date field (RFC 9110 s.6.6.1). Returns `None` if the
/// clock shows a time before 1970, which cannot be right.
pub(super) fn now() -> Option<HeaderValue> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    HeaderValue::from_str(&http_date(since.as_secs())).ok()
}

/// Formats seconds since 1970 as IMF-fixdate (RFC 9110 s.5.6.7).
fn http_date(seconds: u64) -> String {
    let seconds = seconds.min(LAST);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = usize::try_from(days % 7).map_or("", |day| DAYS[day]);
    let (year, month, day) = civil(days);
    let month = MONTHS[month];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Converts a number of days since 1970-01-01 into a date of the Gregorian calendar: the year, the
/// month from 0, and the day from 1.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // Skips whole cycles of 400 years, which have 146,097 days each.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_an_imf_fixdate() {
        for (seconds, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            // The example of RFC 9110 s.5.6.7.
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (LAST, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(seconds), expected);
        }
        assert!(now().is_some());
    }
}
