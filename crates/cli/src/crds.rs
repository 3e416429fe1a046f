//! `kai crds`.

use std::io::Write;

use crate::complaint::Complaint;

pub(crate) fn run() -> Result<(), Complaint> {
    anstream::stdout().write_all(kai_api::crds_yaml().as_bytes())?;
    Ok(())
}
