//! `kai rbac`.

use std::io::Write;

use crate::complaint::Complaint;

pub(crate) fn run() -> Result<(), Complaint> {
    let mut out = anstream::stdout();
    for manifest in kai_control::roles::manifests() {
        let document = serde_norway::to_string(&manifest).expect("plain text and maps can be written as YAML");
        write!(out, "---\n{document}")?;
    }
    Ok(())
}
