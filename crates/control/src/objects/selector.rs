//! Label selectors, as pods and storage use them about other objects.

use std::collections::BTreeMap;
use std::fmt;

use super::Malformed;
use super::affinity::{Operator, Requirement};
use super::field_reader::FieldReader;

/// All requirements must hold; without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelSelector {
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// `None` if there is no selector, which selects nothing.
    pub(crate) fn read(place: &FieldReader<'_>) -> Result<Option<Self>, Malformed> {
        if !place.exists() {
            return Ok(None);
        }
        let mut selector = Self::default();
        for (key, value) in place.field("matchLabels").string_map()? {
            selector.require(key, Operator::In, value);
        }
        for item in place.field("matchExpressions").items()? {
            let requirement = Requirement::read(&item)?;
            if matches!(requirement.operator, Operator::Gt | Operator::Lt) {
                let operator = item.field("operator");
                return Err(operator.invalid(
                    "labels of objects are not compared as numbers",
                    "use In, NotIn, Exists or DoesNotExist",
                ));
            }
            selector.requirements.push(requirement);
        }
        selector.tidy();
        Ok(Some(selector))
    }

    /// Reads a selector as `kubectl` writes it, such as `team=x,tier in (a,b),!old`.
    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        let mut selector = Self::default();
        // Commas within brackets separate values.
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in text.char_indices().chain([(text.len(), ',')]) {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth <= 0 || at == text.len() => {
                    selector.requirements.push(requirement(text[start..at].trim())?);
                    start = at + 1;
                }
                _ => {}
            }
        }
        selector.tidy();
        Ok(selector)
    }

    /// Adds a requirement about one value.
    pub(crate) fn require(&mut self, key: String, operator: Operator, value: String) {
        self.requirements.push(Requirement { key, operator, values: vec![value] });
        self.tidy();
    }

    fn tidy(&mut self) {
        self.requirements.sort();
        self.requirements.dedup();
    }

    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels.get(&requirement.key).map(String::as_str)))
    }

    /// A label that everything selected has, if there is one.
    pub(crate) fn pivot(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|requirement| match (requirement.operator, requirement.values.as_slice()) {
            (Operator::In, [value]) => Some((requirement.key.as_str(), value.as_str())),
            _ => None,
        })
    }
}

fn requirement(term: &str) -> Result<Requirement, String> {
    let equality = [("!=", Operator::NotIn), ("==", Operator::In), ("=", Operator::In)];
    let set = [(" notin ", Operator::NotIn), (" in ", Operator::In)];
    let (key, operator, values) = if let Some(key) = term.strip_prefix('!') {
        (key, Operator::DoesNotExist, Vec::new())
    } else if let Some((key, operator, value)) = split(term, &equality) {
        (key, operator, vec![value])
    } else if let Some((key, operator, list)) = split(term, &set) {
        let list = list.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
        let list = list.ok_or_else(|| format!("`{term}` names no values in brackets, such as (a,b)"))?;
        (key, operator, list.split(',').map(str::trim).collect())
    } else {
        (term, Operator::Exists, Vec::new())
    };
    let key = key.trim();
    let part = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    if key.is_empty() || !part(key) || !values.iter().all(|value| part(value)) {
        return Err(format!("`{term}` is no requirement about a label, such as team=x"));
    }
    Ok(Requirement { key: key.to_owned(), operator, values: values.into_iter().map(str::to_owned).collect() })
}

/// Around the first of these words that is in the term.
fn split<'t>(term: &'t str, words: &[(&str, Operator)]) -> Option<(&'t str, Operator, &'t str)> {
    words.iter().find_map(|(word, operator)| {
        let (key, value) = term.split_once(word)?;
        Some((key, *operator, value.trim()))
    })
}

/// As `kubectl` writes selectors.
impl fmt::Display for LabelSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator, values }) in self.requirements.iter().enumerate() {
            if index > 0 {
                out.write_str(",")?;
            }
            match (operator, values.as_slice()) {
                (Operator::In, [value]) => write!(out, "{key}={value}")?,
                (Operator::NotIn, [value]) => write!(out, "{key}!={value}")?,
                (Operator::In, values) => write!(out, "{key} in ({})", values.join(","))?,
                (Operator::NotIn, values) => write!(out, "{key} notin ({})", values.join(","))?,
                (Operator::DoesNotExist, _) => write!(out, "!{key}")?,
                (Operator::Exists | Operator::Gt | Operator::Lt, _) => out.write_str(key)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<Option<LabelSelector>, Malformed> {
        LabelSelector::read(&FieldReader::root(value).field("selector"))
    }

    #[test]
    fn nothing_selects_nothing_and_an_empty_selector_everything() {
        assert_eq!(read(&json!({})).unwrap(), None);
        assert!(read(&json!({"selector": {}})).unwrap().unwrap().selects(&BTreeMap::new()));
    }

    #[test]
    fn all_requirements_must_hold_and_are_written_as_kubectl_does() {
        let expressions = json!([{"key": "tier", "operator": "NotIn", "values": ["test", "old"]},
            {"key": "canary", "operator": "DoesNotExist"}]);
        let selector = json!({"selector": {"matchLabels": {"app": "web"}, "matchExpressions": expressions}});
        let selector = read(&selector).unwrap().unwrap();
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(selector.selects(&labels(&[("app", "web")])));
        assert!(!selector.selects(&labels(&[("app", "web"), ("tier", "old")])));
        assert!(!selector.selects(&labels(&[("app", "db")])));
        assert_eq!(selector.to_string(), "app=web,!canary,tier notin (test,old)");
        assert_eq!(selector.pivot(), Some(("app", "web")));
    }

    #[test]
    fn selectors_are_read_as_kubectl_writes_them() {
        for text in ["app=web", "app=web,!canary,tier notin (old,test)", "gpu,tier in (a,b)", "example.com/team!=x"] {
            assert_eq!(LabelSelector::from_text(text).unwrap().to_string(), text);
        }
        assert_eq!(LabelSelector::from_text(" a == b , c ").unwrap().to_string(), "a=b,c");
        for wrong in ["", "a=b,", "a in b", "a b", "=x", "a=(b", "!", "a in (b", "a>3"] {
            assert!(LabelSelector::from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_not_compared() {
        let expressions = json!([{"key": "cores", "operator": "Gt", "values": ["3"]}]);
        let wrong = read(&json!({"selector": {"matchExpressions": expressions}})).unwrap_err();
        assert_eq!(wrong.field, "selector.matchExpressions[0].operator");
    }
}
