//! Files that hold a cluster at one moment, so that its scheduling cycle can be run again, anywhere.
//!
//! The format is that of KAI's snapshots, with one part more. KAI's own tools pass over it, and without it a file is
//! read all the same:
//!
//! ```text
//! snapshot.json, in a zip archive, gzipped, or as it is
//!   config            the scheduler's configuration file
//!   schedulerParams   its flags
//!   rawObjects        lists of Kubernetes objects, one a kind
//!   discovery         what the API server offers
//!   cycle             ours: formatVersion, now, usage (of queues, in millionths of the cluster)
//! ```
//!
//! With `cycle`, everything that a cycle depends on is in the file: running it again decides the same.
//! Pure: bytes in, objects out, and back.

mod lists;
mod parameters;
mod read;
mod unpack;
mod write;

pub use read::Recording;
pub use unpack::ReadError;
pub use write::{RecordingHeader, write};

/// The only entry of an archive.
pub const ENTRY: &str = "snapshot.json";

/// Of the part that is ours. A file of a later format may hold what this program does not understand.
pub const FORMAT_VERSION: u64 = 1;
