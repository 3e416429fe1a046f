//! From objects to a file that both `kai` and NVIDIA KAI can read.

use std::collections::BTreeMap;
use std::io::{self, Seek, Write};

use jiff::Timestamp as Instant;
use kai_control::Kind;
use kai_control::scheduler::Usage;
use kai_engine::units::Timestamp;
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::{ENTRY, FORMAT_VERSION};

/// Everything but the objects.
#[derive(Clone, Debug)]
pub struct RecordingHeader {
    /// The scheduler's configuration file.
    pub config: Value,
    /// Its flags, in the spelling of snapshots.
    pub parameters: Value,
    /// What the API server offers.
    pub discovery: Value,
    /// When the cycle runs.
    pub now: Timestamp,
    /// Past usage of queues.
    pub usage: Usage,
}

/// Writes an archive. Objects of a kind are neighbours, and kinds come in the order of KAI's lists (pods first, then
/// nodes, queues, pod groups …), so that none has to wait in memory.
pub fn write(
    out: impl Write + Seek,
    header: &RecordingHeader,
    objects: impl IntoIterator<Item = Value>,
) -> io::Result<()> {
    let mut archive = ZipWriter::new(out);
    // Fast packing: JSON of a cluster shrinks to a twentieth anyway. No time, so that equal clusters give equal files.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(1))
        .last_modified_time(zip::DateTime::default())
        .large_file(true);
    archive.start_file(ENTRY, options)?;
    let mut packed = io::BufWriter::with_capacity(1 << 16, &mut archive);
    json_to(&mut packed, header, objects)?;
    packed.flush()?;
    drop(packed);
    archive.finish()?.flush()
}

fn json_to(out: &mut impl Write, header: &RecordingHeader, objects: impl IntoIterator<Item = Value>) -> io::Result<()> {
    write!(out, "{{\"config\":{},\"schedulerParams\":{},\"rawObjects\":{{", header.config, header.parameters)?;
    // The list that is open, and whether it has an item.
    let mut open: Option<(usize, bool)> = None;
    for object in objects {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let kind = text("kind");
        let list = Kind::of(text("apiVersion"), kind).ok_or_else(|| misuse(&format!("there is no list of {kind}")))?;
        if !Kind::CYCLE_INPUTS.contains(&list) {
            return Err(misuse(&format!("no cycle depends on a {kind}")));
        }
        let list = list as usize;
        if open.is_some_and(|(current, _)| list < current) {
            return Err(misuse(&format!("{kind} comes too late")));
        }
        advance(out, &mut open, list)?;
        if let Some((_, true)) = open {
            out.write_all(b",")?;
        }
        serde_json::to_writer(&mut *out, &object)?;
        open = Some((list, true));
    }
    advance(out, &mut open, Kind::CYCLE_INPUTS.len() - 1)?;
    let cycle = json!({"formatVersion": FORMAT_VERSION, "now": instant(header.now)?, "usage": usage(&header.usage)});
    write!(out, "]}},\"discovery\":{},\"cycle\":{cycle}}}", header.discovery)
}

/// Closes and opens lists until `list` is the open one.
fn advance(out: &mut impl Write, open: &mut Option<(usize, bool)>, list: usize) -> io::Result<()> {
    let first = match *open {
        Some((current, _)) if current == list => return Ok(()),
        Some((current, _)) => current + 1,
        None => 0,
    };
    for (index, kind) in Kind::CYCLE_INPUTS.iter().enumerate().take(list + 1).skip(first) {
        write!(out, "{}\"{}\":[", if index == 0 { "" } else { "]," }, kind.row().snapshot_list)?;
    }
    *open = Some((list, false));
    Ok(())
}

fn misuse(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, words.to_owned())
}

fn instant(time: Timestamp) -> io::Result<String> {
    let instant = Instant::from_microsecond(time.0);
    instant.map(|instant| instant.to_string()).map_err(|error| misuse(&error.to_string()))
}

fn usage(usage: &Usage) -> BTreeMap<&str, Value> {
    let amounts = |[cpu, memory, gpu]: [i64; 3]| json!({"cpu": cpu, "memory": memory, "gpu": gpu});
    usage.queues.iter().map(|(queue, used)| (queue.as_str(), amounts(*used))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::{ReadError, Recording};

    fn archive(objects: Vec<Value>) -> io::Result<Vec<u8>> {
        let mut bytes = Cursor::new(Vec::new());
        let header = RecordingHeader {
            config: json!({"actions": "allocate"}),
            parameters: json!({}),
            discovery: json!({}),
            now: Timestamp(1_768_478_400_000_001),
            usage: Usage { queues: [("a".to_owned(), [1, 2, 3])].into() },
        };
        write(&mut bytes, &header, objects)?;
        Ok(bytes.into_inner())
    }

    fn sample() -> Vec<Value> {
        vec![
            json!({"kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}),
            json!({"kind": "Pod", "metadata": {"name": "b", "namespace": "x"}}),
            json!({"kind": "Queue", "metadata": {"name": "q"}}),
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        for objects in [Vec::new(), sample()] {
            let mut recording = Recording::read(&archive(objects.clone()).unwrap()).unwrap();
            assert_eq!((recording.time(), recording.usage.queues["a"]), (Timestamp(1_768_478_400_000_001), [1, 2, 3]));
            let world = recording.take_world();
            assert_eq!(world.pods.len() + world.queues.len(), objects.len());
        }
    }

    #[test]
    fn equal_clusters_give_equal_files() {
        assert_eq!(archive(sample()).unwrap(), archive(sample()).unwrap());
    }

    #[test]
    fn objects_must_come_in_order() {
        let mut objects = sample();
        objects.reverse();
        assert_eq!(archive(objects).unwrap_err().to_string(), "Pod comes too late");
        assert_eq!(archive(vec![json!({"kind": "Novelty"})]).unwrap_err().to_string(), "there is no list of Novelty");
    }

    /// Cut anywhere, a file is an error and never half a cluster.
    #[test]
    fn a_file_that_is_cut_off_is_refused() {
        let whole = archive(sample()).unwrap();
        for end in 0..whole.len() {
            let wrong = Recording::read(&whole[..end]).unwrap_err();
            assert!(matches!(wrong, ReadError::Empty | ReadError::Foreign | ReadError::Damaged(_)), "{end}: {wrong}");
        }
    }
}
