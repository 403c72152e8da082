//! Clock times and durations as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The present in UTC as `yyyymmdd-hhmmss`.
pub fn stamp() -> String {
    // A clock before 1970 gives the stamp of 1970; the stamp only names a directory.
    stamp_of(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Seconds since 1970 in UTC as `yyyymmdd-hhmmss`.
///
/// # Source
/// Days to date: Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
fn stamp_of(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{:02}", second % 60)
}

/// A duration in the two largest units: `3.2 s`, `4 min 05 s`, `2 h 03 min`.
pub fn words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 951 782 400 is the first second of 29 February 2000, 4 107 542 399 the last of 28 February 2100.
    #[test]
    fn stamps_follow_the_calendar() {
        assert_eq!(stamp_of(0), "19700101-000000");
        assert_eq!(stamp_of(951_782_400), "20000229-000000");
        assert_eq!(stamp_of(4_107_542_399), "21000228-235959");
        assert_eq!(stamp_of(4_107_542_400), "21000301-000000");
    }

    #[test]
    fn durations_have_two_units() {
        assert_eq!(words(Duration::from_millis(3240)), "3.2 s");
        assert_eq!(words(Duration::from_secs(245)), "4 min 05 s");
        assert_eq!(words(Duration::from_secs(7400)), "2 h 03 min");
    }
}
