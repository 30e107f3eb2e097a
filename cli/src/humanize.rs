//! Formats sizes and times for people.

pub use ringreel::humanize::counted;

/// Returns `bytes` with a suitable unit: "17 B", "1.5 MiB".
pub fn human_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Returns `seconds` with a suitable unit: "1.5 s", "2.0 h".
pub fn human_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// Returns a time in UTC as `2026-11-22` and `09:15:07`. Converts days to a date by Howard
/// Hinnant's `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn utc(unix_ms: u64) -> (String, String) {
    let seconds = unix_ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153; // from March on
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let date = format!("{:04}-{month:02}-{day:02}", year_of_era + era * 400 + late);
    (date, format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_times_match_the_calendar() {
        let text = |ms| {
            let (date, time) = utc(ms);
            format!("{date} {time}")
        };
        assert_eq!(text(0), "1970-01-01 00:00:00");
        assert_eq!(text(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(text(1_709_251_199_999), "2024-02-29 23:59:59");
        assert_eq!(text(4_102_444_800_000), "2100-01-01 00:00:00");
        assert!(text(u64::MAX).ends_with(":51"));
    }
}
