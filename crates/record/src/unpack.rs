//! From the bytes of a file to the JSON in it, whatever it is packed in.

use std::borrow::Cow;
use std::io::{Cursor, Read};

use flate2::read::GzDecoder;
use kai_workloads::brief;
use thiserror::Error;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::{ENTRY, FORMAT_VERSION};

/// More than any cluster fills; a file that claims more is damaged, or means harm.
const UNPACKED_MAX: u64 = 8 << 30;

/// Objects of a cluster are alike, but none that was recorded shrinks to less than a hundredth. Zeros shrink to a thousandth.
const RATIO_MAX: u64 = 200;

/// What even the smallest file may unpack to.
const UNPACKED_ANYHOW: u64 = 64 << 20;

/// A file that cannot be replayed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    #[error("the file is empty")]
    Empty,
    #[error("the file is neither a zip archive nor JSON")]
    Foreign,
    #[error("the archive is damaged or cut off: {0}")]
    Damaged(String),
    #[error("the archive holds no {ENTRY}, but {0}")]
    NoEntry(String),
    #[error("the file unpacks to more than {} MiB, which is more than {RATIO_MAX} times its size or {} GiB", .0 >> 20, UNPACKED_MAX >> 30)]
    TooLarge(u64),
    #[error("the JSON ends in the middle: {0}")]
    CutOff(String),
    #[error("the JSON is damaged: {0}")]
    NotJson(String),
    #[error("the JSON is no snapshot: {0}")]
    NotASnapshot(String),
    #[error("the record has format {0}, this program reads {FORMAT_VERSION}")]
    Version(u64),
}

impl ReadError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Damaged(_) | Self::CutOff(_) | Self::NotJson(_) => "fetch or write the file again",
            Self::Version(_) => "use the version of kai that wrote it, or a later one",
            _ => "give a snapshot that KAI's /get-snapshot served, or one that `kai generate` wrote",
        }
    }
}

impl From<serde_json::Error> for ReadError {
    fn from(error: serde_json::Error) -> Self {
        let words = brief(&error.to_string(), 300).into_owned();
        match error.classify() {
            serde_json::error::Category::Eof => Self::CutOff(words),
            serde_json::error::Category::Data => Self::NotASnapshot(words),
            _ => Self::NotJson(words),
        }
    }
}

/// The JSON of a file.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ReadError> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match (bytes, first) {
        (_, None) => Err(ReadError::Empty),
        ([b'P', b'K', ..], _) => from_zip(bytes).map(Cow::Owned),
        ([0x1f, 0x8b, ..], _) => read_all(GzDecoder::new(bytes), bytes.len(), unpacked_max(bytes)).map(Cow::Owned),
        (_, Some(b'{')) => Ok(Cow::Borrowed(bytes)),
        _ => Err(ReadError::Foreign),
    }
}

fn from_zip(bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    let damaged = |error: ZipError| ReadError::Damaged(brief(&error.to_string(), 300).into_owned());
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    let Some(index) = archive.index_for_name(ENTRY) else {
        let mut names = archive.file_names().flatten();
        let shown = |name: Cow<'_, str>| name.escape_debug().take(60).collect::<String>();
        let found = names.next().map_or_else(|| "nothing".to_owned(), shown);
        let more = names.count();
        return Err(ReadError::NoEntry(if more > 0 { format!("{found} and {more} more") } else { found }));
    };
    let entry = archive.by_index(index).map_err(damaged)?;
    // The archive states a size, which may be wrong or hostile: it only decides what is reserved at first.
    let expected = usize::try_from(entry.size()).unwrap_or(usize::MAX).min(bytes.len().saturating_mul(64));
    read_all(entry, expected, unpacked_max(bytes))
}

/// What a file may unpack to.
fn unpacked_max(file: &[u8]) -> u64 {
    (file.len() as u64).saturating_mul(RATIO_MAX).clamp(UNPACKED_ANYHOW, UNPACKED_MAX)
}

fn read_all(packed: impl Read, expected: usize, most: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::with_capacity(expected);
    let read = packed.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| ReadError::Damaged(error.to_string()))?;
    if bytes.len() as u64 > most {
        return Err(ReadError::TooLarge(most));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_file_that_unpacks_without_end_is_refused() {
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&b" ".repeat(100_000)).unwrap();
        let packed = bomb.finish().unwrap();
        assert_eq!(read_all(GzDecoder::new(&packed[..]), 0, 99_999).unwrap_err(), ReadError::TooLarge(99_999));
        assert_eq!(read_all(GzDecoder::new(&packed[..]), 0, 100_000).unwrap().len(), 100_000);
        assert_eq!((unpacked_max(&packed), unpacked_max(&vec![0; 1 << 20])), (64 << 20, 200 << 20));
    }

    #[test]
    fn the_error_about_a_damaged_file_is_cut() {
        let long = format!("{{\"rawObjects\": \"{}\"}}", "x".repeat(1 << 20));
        let error = crate::Recording::read(long.as_bytes()).unwrap_err().to_string();
        assert!(error.len() < 600, "{}", error.len());
    }
}
