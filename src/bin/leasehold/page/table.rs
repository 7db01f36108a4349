//! Tables, and numbers as people read them.

use std::fmt::Write;

/// A table with a heading for each column; of the first cell of each row it is known that it names the row.
pub fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let mut html = String::from("<div class=\"wide\"><table><thead><tr>");
    for heading in headings {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(heading));
    }
    html += "</tr></thead><tbody>";
    for row in rows {
        html += "<tr>";
        for (index, Cell { text, best }) in row.into_iter().enumerate() {
            let text = escape(&text);
            let _ = match (index, best) {
                (0, _) => write!(html, "<th scope=\"row\">{text}</th>"),
                (_, true) => write!(html, "<td class=\"best\">{text} <span>best</span></td>"),
                (_, false) => write!(html, "<td>{text}</td>"),
            };
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}

pub struct Cell {
    pub text: String,
    pub best: bool,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell { text, best: false }
    }
}

/// For text between tags and in attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

/// Nanoseconds in the unit that fits them, three digits.
pub fn span(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n if n >= 1e3 => (n / 1e3, "µs"),
        n => (n, "ns"),
    };
    format!("{} {unit}", digits(value))
}

/// Three digits that count, more only before the point.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A whole number in groups of three.
pub fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, c) in digits.chars().enumerate() {
        if index > 0
            && (digits.len() - index).is_multiple_of(3)
            && c.is_ascii_digit()
            && !grouped.ends_with('-')
        {
            grouped.push(',');
        }
        grouped.push(c);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0.0, 999.0, 1_234.0, 1_234_567.4].map(count), ["0", "999", "1,234", "1,234,567"]);
        assert_eq!([12.0, 1_500.0, 2.5e6, 61e9].map(span), ["12.0 ns", "1.50 µs", "2.50 ms", "61.0 s"]);
    }

    #[test]
    fn nothing_breaks_out() {
        let html = table(&["a<b"], [vec![Cell::from("<script>\"&'\x07".to_owned())]]);
        assert!(html.contains("a&lt;b") && html.contains("&lt;script&gt;&quot;&amp;&#39;?"), "{html}");
        assert!(!html.contains("<script"));
    }
}
