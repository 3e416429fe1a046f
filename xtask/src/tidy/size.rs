//! No source file grows past what one reading holds.

use super::Problem;
use crate::workspace::{File, Workspace};

const LINES_MAX: usize = 800;

/// Longer files, each with the reason it is one subject all the same.
const LONG: [(&str, &str); 0] = [];

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    against(workspace, &LONG)
}

fn against(workspace: &Workspace, long: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let sources = workspace.files.iter().filter(|file| is_source(file));
    for file in sources {
        let lines = file.text.lines().count();
        let excused = long.iter().any(|(path, _)| *path == file.path);
        match (lines > LINES_MAX, excused) {
            (true, false) => {
                let what = format!("has {lines} lines, more than {LINES_MAX}; look for the second subject");
                problems.push(Problem::new(&file.path, what));
            }
            (false, true) => problems.push(Problem::new(&file.path, "is excused as long, but no longer is")),
            _ => {}
        }
    }
    for (path, _) in long.iter().filter(|(path, _)| !workspace.files.iter().any(|file| file.path == *path)) {
        problems.push(Problem::new(*path, "is excused as long, but does not exist"));
    }
    problems
}

fn is_source(file: &File) -> bool {
    file.is_rust() && file.path.split('/').any(|part| matches!(part, "src" | "tests" | "benches"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    #[test]
    fn a_long_file_is_caught_unless_excused() {
        let at_limit = "\n".repeat(800);
        let past_limit = "\n".repeat(801);
        let files = sample(
            &[
                ("crates/a/src/fine.rs", &at_limit),
                ("crates/a/src/deep/long.rs", &past_limit),
                ("a.md", &past_limit),
                ("crates/a/tests/long.rs", &past_limit),
            ],
            &[],
        );
        assert_eq!(
            lines(&check(&files)),
            [
                "crates/a/src/deep/long.rs: has 801 lines, more than 800; look for the second subject",
                "crates/a/tests/long.rs: has 801 lines, more than 800; look for the second subject"
            ]
        );
        let excused = [("crates/a/src/deep/long.rs", "one big table"), ("crates/a/tests/long.rs", "many cases")];
        assert!(against(&files, &excused).is_empty());
    }

    #[test]
    fn an_outdated_excuse_is_caught() {
        let files = sample(&[("src/short.rs", "")], &[]);
        assert_eq!(
            lines(&against(&files, &[("src/short.rs", "was long"), ("src/gone.rs", "was long")])),
            [
                "src/short.rs: is excused as long, but no longer is",
                "src/gone.rs: is excused as long, but does not exist"
            ]
        );
    }
}
