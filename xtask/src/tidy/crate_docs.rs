//! Every library opens with what it is for.

use super::Problem;
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    let libraries = workspace.files.iter().filter(|file| file.path.ends_with("src/lib.rs"));
    let undocumented = libraries.filter(|file| !file.text.starts_with("//! "));
    undocumented.map(|file| Problem::new(&file.path, "does not open with a //! line")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    #[test]
    fn a_library_without_docs_is_caught() {
        let files = sample(
            &[
                ("crates/a/src/lib.rs", "//! Does this.\n"),
                ("crates/b/src/lib.rs", "mod x;\n"),
                ("crates/c/src/x.rs", ""),
            ],
            &[],
        );
        assert_eq!(lines(&check(&files)), ["crates/b/src/lib.rs: does not open with a //! line"]);
    }
}
