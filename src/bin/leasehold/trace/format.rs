//! A trace format: three columns and how to read a moment. Recognised by its header.

use super::{azure, burstgpt};

/// A CSV layout. The columns are found by name: their order is free and others may stand beside them.
pub struct Format {
    /// What the report calls it.
    pub name: &'static str,
    /// The names of the columns with the moment, the tokens of the prompt, and the tokens of the answer.
    pub columns: [&'static str; 3],
    /// Nanoseconds on the trace's own time line.
    pub moment: fn(&str) -> Option<i128>,
    /// What `moment` expects, for the error message.
    pub expected: &'static str,
}

const FORMATS: [&Format; 2] = [&azure::FORMAT, &burstgpt::FORMAT];

/// Where the three columns are.
pub type Columns = [usize; 3];

/// The format that most names of the header belong to, or what is wrong with the header, and at which of its columns.
pub fn recognise(header: &[&str]) -> Result<(&'static Format, Columns), (usize, String)> {
    let position = |name: &str| header.iter().position(|&found| found.trim() == name);
    let known = |format: &Format| format.columns.iter().filter(|name| position(name).is_some()).count();
    // The first of the best: on a draw, the format listed first.
    let best =
        FORMATS.into_iter().rev().max_by_key(|format| known(format)).filter(|format| known(format) > 0);
    let Some(format) = best else {
        let [azure, burstgpt] = FORMATS.map(|format| format.columns.join(","));
        return Err((0, format!("expected a header with the columns {azure} or {burstgpt}")));
    };
    if FORMATS.iter().all(|format| known(format) == format.columns.len()) {
        let mut moments = FORMATS.map(|format| (position(format.columns[0]).unwrap_or(0), format));
        moments.sort_by_key(|&(at, _)| at);
        let [(_, one), (at, other)] = moments;
        let message = format!(
            "expected the columns of one format, found {:?} ({} format) beside those of the {} format",
            other.columns[0], other.name, one.name
        );
        return Err((at, message));
    }
    let again = |name: &str| header.iter().enumerate().filter(|(_, found)| found.trim() == name).nth(1);
    if let Some((at, name)) = format.columns.into_iter().find_map(|name| Some((again(name)?.0, name))) {
        return Err((at, format!("expected one column {name:?}, the header has another")));
    }
    match format.columns.map(|name| position(name).ok_or(name)) {
        [Ok(moment), Ok(context), Ok(generated)] => Ok((format, [moment, context, generated])),
        [Err(missing), ..] | [_, Err(missing), _] | [.., Err(missing)] => {
            Err((0, format!("expected a column {missing:?} ({} format), the header has none", format.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_recognised() {
        let azure = recognise(&["TIMESTAMP", "ContextTokens", "GeneratedTokens"]).unwrap();
        assert_eq!((azure.0.name, azure.1), ("azure", [0, 1, 2]));
        let header = ["Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"];
        let burst = recognise(&header).unwrap();
        assert_eq!((burst.0.name, burst.1), ("burstgpt", [0, 2, 3]));
    }

    #[test]
    fn a_missing_column_is_named() {
        let (_, error) = recognise(&["TIMESTAMP", "ContextTokens"]).err().unwrap();
        assert!(error.contains("\"GeneratedTokens\"") && error.contains("azure"), "{error}");
        let (_, error) = recognise(&["Timestamp", "Request tokens"]).err().unwrap();
        assert!(error.contains("\"Response tokens\""), "{error}");
        assert!(recognise(&["a", "b"]).err().unwrap().1.contains("TIMESTAMP,ContextTokens,GeneratedTokens"));
        assert!(recognise(&[]).is_err());
    }

    #[test]
    fn an_ambiguous_header_is_refused_at_the_second_column() {
        let [azure, burst] = FORMATS.map(|format| format.columns);
        let (at, error) = recognise(&[&azure[..], &["x"], &azure[1..2]].concat()).err().unwrap();
        assert!(at == 4 && error.contains("one column \"ContextTokens\""), "{at}: {error}");
        let (at, error) = recognise(&[&burst[..], &azure[..]].concat()).err().unwrap();
        assert!(at == 3 && error.contains("\"TIMESTAMP\" (azure format)"), "{at}: {error}");
        // What is not needed may be there twice.
        assert!(recognise(&[&["x", "x"], &azure[..], &burst[..2]].concat()).is_ok());
    }
}
