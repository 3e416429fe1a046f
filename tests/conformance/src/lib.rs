//! Runs recorded scheduling cases against the product and says where they differ.
//!
//! A corpus is data: clusters in, expectations out. It lives outside of this repository; nothing here knows a
//! case by name. Differences that are meant are listed in `docs/compat`, see [`known`].

pub mod actions;
pub mod corpus;
pub mod fairshare;
pub mod known;
pub mod podgrouper;
pub mod report;
pub mod run;
pub mod topology;
pub mod unchanged;
pub mod verdict;

use std::path::{Path, PathBuf};

/// The folder that holds the workspace.
pub fn workspace() -> &'static Path {
    // This package is two levels below the workspace.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the manifest is inside the workspace")
}

/// Where the corpus is unless the user says so: `$KAI_CONFORMANCE_DIR`, or beside the workspace.
pub fn default_corpus() -> PathBuf {
    match std::env::var_os("KAI_CONFORMANCE_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => workspace().join("../shared/conformance"),
    }
}

/// Where known differences are listed.
pub fn compat_folder() -> PathBuf {
    workspace().join("docs/compat")
}
