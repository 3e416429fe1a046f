//! `kai rbac`.

use std::io::Write;

use crate::args::RbacArgs;
use crate::error::CliError;

pub(crate) fn run(args: &RbacArgs) -> Result<(), CliError> {
    let mut out = anstream::stdout();
    let mut manifests = kai_control::rbac::manifests();
    manifests.extend(kai_control::rbac::declared::manifests(args.kinds()));
    for manifest in manifests {
        let document = yaml_serde::to_string(&manifest).expect("plain text and maps can be written as YAML");
        write!(out, "---\n{document}")?;
    }
    Ok(())
}
