//! `kai crds`.

use std::io::Write;

use crate::error::CliError;

pub(crate) fn run() -> Result<(), CliError> {
    anstream::stdout().write_all(kai_api::crds_yaml().as_bytes())?;
    Ok(())
}
