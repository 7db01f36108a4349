//! `Retry-After`, in both directions: RFC 9110, section 10.2.3.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, HeaderValue,
    header::{DATE, RETRY_AFTER},
};

/// What a provider may ask for at most: a typing error of theirs must not take a key out for a year.
const LONGEST: Duration = Duration::from_secs(3_600);

/// How long the provider wants to be left alone: seconds, or a date. `None` if it does not say, or not in a form that can be read.
///
/// A date is one of the provider's clock, which may be wrong: if the answer says what time it is there, by `Date`, the difference counts,
/// and not what `now` is here.
pub fn read(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let after = if is_number {
        // What no number holds is a long time all the same.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let date = |text: &str| httpdate::parse_http_date(text).ok();
        let there = headers.get(DATE).and_then(|value| date(value.to_str().ok()?.trim()));
        // A date that is past: at once.
        date(text)?.duration_since(there.unwrap_or(now)).unwrap_or_default()
    };
    Some(after.min(LONGEST))
}

/// Whole seconds, rounded up, at least one: a client that comes back on time must find a key.
pub fn write(after: Duration) -> HeaderValue {
    HeaderValue::from(whole_seconds(after))
}

/// As [`write()`], as a number.
pub fn whole_seconds(after: Duration) -> u64 {
    (after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &'static str) -> Option<Duration> {
        // Sun, 06 Nov 1994 08:49:37 GMT, the example of the RFC.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
        read(&headers, now)
    }

    #[test]
    fn seconds_and_dates() {
        assert_eq!(told("120"), Some(Duration::from_secs(120)));
        assert_eq!(told("0"), Some(Duration::ZERO));
        assert_eq!(told("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(told("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        for long in ["99999999", "18446744073709551615", "18446744073709551616", "99999999999999999999999"] {
            assert_eq!(told(long), Some(LONGEST), "{long}");
        }
        for unreadable in ["", "soon", "-1", "+1", "1.5"] {
            assert_eq!(told(unreadable), None, "{unreadable}");
        }
        assert_eq!(read(&HeaderMap::new(), SystemTime::UNIX_EPOCH), None);
    }

    #[test]
    fn a_date_is_one_of_the_providers_clock() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let told = |date: &'static str| {
            let fields = [(RETRY_AFTER, "Sun, 06 Nov 1994 08:50:07 GMT"), (DATE, date)];
            let headers =
                HeaderMap::from_iter(fields.map(|(name, value)| (name, HeaderValue::from_static(value))));
            read(&headers, now)
        };
        // Five minutes fast, slow, and not to be read.
        assert_eq!(told("Sun, 06 Nov 1994 08:45:07 GMT"), Some(Duration::from_secs(300)));
        assert_eq!(told("Sun, 06 Nov 1994 08:50:00 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(told("today"), Some(Duration::from_secs(30)));
    }

    #[test]
    fn rounded_up_and_at_least_one() {
        let seconds = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([0, 1, 999, 1_000, 1_001, 4_500].map(seconds), [1, 1, 1, 1, 2, 5]);
        assert_eq!(write(Duration::from_millis(4_500)), "5");
    }
}
