//! Results on standard output, in the form that was asked for.

use std::io::{self, Write};

use serde::Serialize;

use crate::args::Format;
use crate::error::CliError;

/// Prints a result; `table` is its form for people.
pub(crate) fn print<T: Serialize>(
    result: &T,
    format: Format,
    table: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    let text = match format {
        Format::Table => table(result),
        Format::Json => serde_json::to_string_pretty(result).map(|text| text + "\n").map_err(io::Error::from)?,
        Format::Yaml => yaml_serde::to_string(result).map_err(io::Error::other)?,
    };
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
