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

/// The format that most names of the header belong to, or what is wrong with the header.
pub fn recognise(header: &[&str]) -> Result<(&'static Format, Columns), String> {
    let position = |name: &str| header.iter().position(|&found| found.trim() == name);
    let known = |format: &Format| format.columns.iter().filter(|name| position(name).is_some()).count();
    // The first of the best: on a draw, the format listed first.
    let best =
        FORMATS.into_iter().rev().max_by_key(|format| known(format)).filter(|format| known(format) > 0);
    let Some(format) = best else {
        let [azure, burstgpt] = FORMATS.map(|format| format.columns.join(","));
        return Err(format!("expected a header with the columns {azure} or {burstgpt}"));
    };
    match format.columns.map(|name| position(name).ok_or(name)) {
        [Ok(moment), Ok(context), Ok(generated)] => Ok((format, [moment, context, generated])),
        [Err(missing), ..] | [_, Err(missing), _] | [.., Err(missing)] => {
            Err(format!("expected a column {missing:?} ({} format), the header has none", format.name))
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
        let error = recognise(&["TIMESTAMP", "ContextTokens"]).err().unwrap();
        assert!(error.contains("\"GeneratedTokens\"") && error.contains("azure"), "{error}");
        let error = recognise(&["Timestamp", "Request tokens"]).err().unwrap();
        assert!(error.contains("\"Response tokens\""), "{error}");
        assert!(recognise(&["a", "b"]).err().unwrap().contains("TIMESTAMP,ContextTokens,GeneratedTokens"));
        assert!(recognise(&[]).is_err());
    }
}
