//! The Azure LLM inference traces of 2023 and 2024.

use super::format::Format;

/// 2023 writes `2023-11-16 18:15:46.6805900`, which is UTC; 2024 writes the offset behind it.
pub const FORMAT: Format = Format {
    name: "azure",
    columns: ["TIMESTAMP", "ContextTokens", "GeneratedTokens"],
    moment,
    expected: "a time such as 2023-11-16 18:15:46.6805900",
};

fn moment(text: &str) -> Option<i128> {
    // Date, separator and time of day to the second: shorter forms would leave the hour to guesswork.
    const SECONDS: usize = "2023-11-16 18:15:46".len();
    let rest = text.get(SECONDS..)?;
    if rest.contains(['Z', 'z', '+', '-']) {
        return Some(text.parse::<jiff::Timestamp>().ok()?.as_nanosecond());
    }
    let time: jiff::civil::DateTime = text.parse().ok()?;
    Some(jiff::tz::Offset::UTC.to_timestamp(time).ok()?.as_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let nanos = 1_700_158_546_680_590_000;
        assert_eq!(moment("2023-11-16 18:15:46.6805900"), Some(nanos));
        assert_eq!(moment("2023-11-16 18:15:46.680590"), Some(nanos));
        assert_eq!(moment("2023-11-16 18:15:46.680590+00:00"), Some(nanos));
        assert_eq!(moment("2023-11-16 19:15:46.68059+01:00"), Some(nanos));
        assert_eq!(moment("2023-11-16 18:15:46"), Some(nanos - 680_590_000));
    }

    #[test]
    fn nonsense() {
        let texts = [
            "",
            "x",
            "2023-11-16",
            "2023-11-16 18",
            "2023-13-16 18:15:46",
            "2023-11-16 25:15:46",
            "1700158546",
        ];
        for text in texts {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
