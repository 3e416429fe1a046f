//! Required node affinity: which node labels a pod insists on.

use std::collections::BTreeMap;

use super::Malformed;
use super::field_reader::FieldReader;

/// All requirements of a term must hold; a term without any holds nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTerm {
    pub labels: Vec<Requirement>,
    /// On fields of the node; the only one is `metadata.name`.
    pub fields: Vec<Requirement>,
}

/// `key operator values`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl NodeTerm {
    /// `spec.affinity`: the required node terms, one of which must hold; `None` if nothing is required.
    pub(crate) fn read_required(affinity: &FieldReader<'_>) -> Result<Option<Vec<Self>>, Malformed> {
        Self::read_selector(&affinity.field("nodeAffinity").field("requiredDuringSchedulingIgnoredDuringExecution"))
    }

    /// A node selector: terms of which one must hold; `None` if there is none.
    pub(crate) fn read_selector(selector: &FieldReader<'_>) -> Result<Option<Vec<Self>>, Malformed> {
        if !selector.exists() {
            return Ok(None);
        }
        let terms = selector.field("nodeSelectorTerms").items()?;
        terms.iter().map(Self::read).collect::<Result<_, _>>().map(Some)
    }

    fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let list = |name: &str| -> Result<Vec<Requirement>, Malformed> {
            place.field(name).items()?.iter().map(Requirement::read).collect()
        };
        Ok(Self { labels: list("matchExpressions")?, fields: list("matchFields")? })
    }

    pub fn holds(&self, node: &str, labels: &BTreeMap<String, String>) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(node);
        let label = |key: &str| labels.get(key).map(String::as_str);
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.labels.iter().all(|requirement| requirement.holds(label(&requirement.key)))
            && self.fields.iter().all(|requirement| requirement.holds(field(&requirement.key)))
    }
}

impl Requirement {
    pub(crate) fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let operator = place.field("operator");
        let values = place.field("values").text_list()?;
        let parsed = match operator.text_or_empty()?.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            other => {
                return Err(operator.invalid(
                    format!("`{other}` is not an operator of a node affinity"),
                    "use In, NotIn, Exists, DoesNotExist, Gt or Lt",
                ));
            }
        };
        let numeric = matches!(parsed, Operator::Gt | Operator::Lt);
        if numeric && !matches!(values.as_slice(), [number] if number.parse::<i64>().is_ok()) {
            return Err(place
                .field("values")
                .invalid("Gt and Lt compare with one whole number", "give exactly one number"));
        }
        Ok(Self { key: place.field("key").text_or_empty()?, operator: parsed, values })
    }

    pub(crate) fn holds(&self, found: Option<&str>) -> bool {
        let listed = || found.is_some_and(|found| self.values.iter().any(|value| value == found));
        let compared = |want: std::cmp::Ordering| {
            let number = |text: &str| text.parse::<i64>().ok();
            let bound = self.values.first().and_then(|value| number(value));
            matches!((found.and_then(number), bound), (Some(found), Some(bound)) if found.cmp(&bound) == want)
        };
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::Gt => compared(std::cmp::Ordering::Greater),
            Operator::Lt => compared(std::cmp::Ordering::Less),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn holds(term: &Value) -> bool {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("cores".to_owned(), "16".to_owned())]);
        NodeTerm::read(&FieldReader::root(term)).unwrap().holds("node-1", &labels)
    }

    fn label(key: &str, operator: &str, values: &Value) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn operators_compare_labels() {
        assert!(holds(&label("zone", "In", &json!(["a", "b"]))));
        assert!(!holds(&label("zone", "NotIn", &json!(["a"]))));
        assert!(holds(&label("rack", "NotIn", &json!(["a"]))));
        assert!(holds(&label("zone", "Exists", &json!([]))));
        assert!(holds(&label("rack", "DoesNotExist", &json!([]))));
        assert!(holds(&label("cores", "Gt", &json!(["8"]))));
        assert!(!holds(&label("cores", "Lt", &json!(["16"]))));
        assert!(!holds(&label("zone", "Gt", &json!(["1"]))));
    }

    #[test]
    fn the_node_itself_can_be_named() {
        assert!(holds(&json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]})));
        assert!(!holds(&json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]})));
    }

    #[test]
    fn an_empty_term_holds_nowhere() {
        assert!(!holds(&json!({})));
    }
}
