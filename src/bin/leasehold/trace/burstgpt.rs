//! The BurstGPT traces: seconds since the trace began.

use super::format::Format;

pub const FORMAT: Format = Format {
    name: "burstgpt",
    columns: ["Timestamp", "Request tokens", "Response tokens"],
    moment,
    expected: "seconds as a decimal number from 0 to 9999999999",
};

fn moment(text: &str) -> Option<i128> {
    // The float parser also takes words, signs and exponents.
    if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    // One multiplication and one rounding, both exact by IEEE 754: the same on every machine.
    (seconds < 1e10).then(|| (seconds * 1e9).round() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        assert_eq!(moment("5"), Some(5_000_000_000));
        assert_eq!(moment("118.25"), Some(118_250_000_000));
        assert_eq!(moment("0.000000001"), Some(1));
        for text in ["", ".", "-1", "1e5", "inf", "NaN", "1.2.3", "99999999999", "1,5"] {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
