//! Finds names in a sorted list: most names differ within a few bytes after a common start, and numbers are compared
//! faster than text.

/// Some names in order, each once.
#[derive(Debug, Default)]
pub(super) struct NameIndex<'w> {
    names: Vec<&'w str>,
    /// What all of them begin with.
    common: &'w str,
    /// The bytes after that, eight at most, as numbers in the same order.
    heads: Vec<u64>,
}

impl<'w> NameIndex<'w> {
    /// Names must be sorted.
    pub(super) fn new(names: Vec<&'w str>) -> Self {
        let common = match (names.first(), names.last()) {
            (Some(first), Some(last)) => common_start(first, last),
            _ => "",
        };
        let heads = names.iter().map(|name| head(&name[common.len()..])).collect();
        Self { names, common, heads }
    }

    /// Where the name is.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let head = head(name.strip_prefix(self.common)?);
        let start = self.heads.partition_point(|known| *known < head);
        let alike = self.heads[start..].partition_point(|known| *known == head);
        let found = self.names[start..start + alike].binary_search(&name);
        found.ok().map(|at| start + at)
    }
}

fn common_start<'w>(left: &'w str, right: &str) -> &'w str {
    let equal = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    let whole = (0..=equal).rev().find(|end| left.is_char_boundary(*end)).unwrap_or(0);
    &left[..whole]
}

fn head(text: &str) -> u64 {
    let mut bytes = [0; 8];
    let size = text.len().min(8);
    bytes[..size].copy_from_slice(&text.as_bytes()[..size]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_and_no_other() {
        let lists: [&[&str]; 5] = [
            &[],
            &["node-1"],
            &["", "a", "a\0", "a\0b", "b"],
            &["node-0001", "node-0002", "node-0002-and-more-of-it", "node-0002-and-more-of-that", "node-1"],
            &["gpu-é", "gpu-è", "gpu-êê"],
        ];
        for names in lists {
            let mut names = names.to_vec();
            names.sort_unstable();
            let lookup = NameIndex::new(names.clone());
            for (index, name) in names.iter().enumerate() {
                assert_eq!(lookup.find(name), Some(index), "{name}");
                assert_eq!(lookup.find(&format!("{name}?")), None, "{name}");
            }
            assert_eq!(lookup.find("nod"), None);
            assert_eq!(lookup.find("zebra"), None);
        }
    }
}
