//! Taints of nodes and tolerations of pods.

use super::Malformed;
use super::field_reader::FieldReader;

/// Keeps pods away that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: TaintEffect,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// Lets a pod onto nodes with a taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// `None` matches every key.
    pub key: Option<String>,
    /// `None` matches every value.
    pub value: Option<String>,
    /// `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

impl Taint {
    pub(crate) fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let effect = place.field("effect");
        Ok(Self {
            key: place.field("key").text_or_empty()?,
            value: place.field("value").text_or_empty()?,
            effect: TaintEffect::read(&effect)?
                .ok_or_else(|| effect.invalid("the taint has no effect", "add NoSchedule or NoExecute"))?,
        })
    }

    /// Whether pods that do not tolerate it stay away; `PreferNoSchedule` only asks.
    pub fn repels(&self) -> bool {
        self.effect != TaintEffect::PreferNoSchedule
    }
}

impl TaintEffect {
    fn read(place: &FieldReader<'_>) -> Result<Option<Self>, Malformed> {
        Ok(match place.non_empty_text()?.as_deref() {
            None => None,
            Some("NoSchedule") => Some(Self::NoSchedule),
            Some("PreferNoSchedule") => Some(Self::PreferNoSchedule),
            Some("NoExecute") => Some(Self::NoExecute),
            Some(other) => {
                return Err(place.invalid(
                    format!("`{other}` is not an effect of a taint"),
                    "use NoSchedule, PreferNoSchedule or NoExecute",
                ));
            }
        })
    }
}

impl Toleration {
    pub(crate) fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let key = place.field("key").non_empty_text()?;
        let operator = place.field("operator");
        let value = match operator.non_empty_text()?.as_deref() {
            Some("Exists") => None,
            None | Some("Equal") => Some(place.field("value").text_or_empty()?),
            Some(other) => {
                return Err(
                    operator.invalid(format!("`{other}` is not an operator of a toleration"), "use Exists or Equal")
                );
            }
        };
        if key.is_none() && value.is_some() {
            return Err(place.invalid(
                "a toleration without a key must use the operator Exists",
                "add `key`, or `operator: Exists`",
            ));
        }
        Ok(Self { key, value, effect: TaintEffect::read(&place.field("effect"))? })
    }

    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tolerates(toleration: &serde_json::Value) -> bool {
        let taint = Taint { key: "team".to_owned(), value: "blue".to_owned(), effect: TaintEffect::NoSchedule };
        Toleration::read(&FieldReader::root(toleration)).unwrap().tolerates(&taint)
    }

    #[test]
    fn a_toleration_matches_key_value_and_effect() {
        assert!(tolerates(&json!({"operator": "Exists"})));
        assert!(tolerates(&json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"})));
        assert!(tolerates(&json!({"key": "team", "value": "blue"})));
        assert!(!tolerates(&json!({"key": "team", "value": "red"})));
        assert!(!tolerates(&json!({"key": "team", "operator": "Exists", "effect": "NoExecute"})));
        assert!(!tolerates(&json!({"key": "other", "operator": "Exists"})));
    }

    #[test]
    fn a_toleration_of_nothing_is_refused() {
        assert!(Toleration::read(&FieldReader::root(&json!({"value": "blue"}))).is_err());
    }
}
