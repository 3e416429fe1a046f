//! Runs the binary in a folder and writes down how it went.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::Expect;

/// The root of the repository, where examples are.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The binary, to be run in a folder, with nothing of the environment that changes its output.
pub(crate) fn kai(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kai"))
        .current_dir(folder)
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .output()
        .expect("the binary was built for this test")
}

/// Standard output of a run that must succeed.
pub(crate) fn stdout(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

/// How a run ended and what it printed.
pub(crate) fn transcript(output: &Output) -> String {
    let code = output.status.code().map_or_else(|| "signal".to_owned(), |code| code.to_string());
    let mut text = format!("exit {code}\n");
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if !bytes.is_empty() {
            text.extend(["-- ", name, "\n", &String::from_utf8_lossy(bytes)]);
        }
    }
    text
}

/// A folder with files of its own, empty at the start of each test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target folder can be written");
        Self(path)
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&self.0)).expect("the target folder can be written");
        fs::write(path, text).expect("the target folder can be written");
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        kai(&self.0, arguments)
    }
}

/// The name of the running test, for a folder of its own.
pub(crate) fn test_name() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("test").replace("::", "-")
}

/// Simulates one file and compares everything that comes of it.
pub(crate) fn check_file(text: &str, expected: &Expect) {
    let output = Folder::new(&test_name()).file("a.yaml", text).run(&["simulate", "a.yaml"]);
    expected.assert_eq(&transcript(&output));
}
