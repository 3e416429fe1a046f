//! How fields travel: left out when they hold nothing, and read leniently.
//!
//! KAI's objects are written by Go with `omitempty`: absent, `null` and zero mean the same, and no optional field is
//! ever written as `null` (the CRDs would refuse it). Fields where absent and zero differ are `Option`s.

use serde::{Deserialize, Deserializer};

/// Declares structs in which every field may be left out.
///
/// Each field is skipped on writing when it equals its default, and reads as that default when absent or `null`.
/// Structs with required fields are written out by hand instead.
macro_rules! omit_empty {
    ($(
        $(#[$outer:meta])*
        pub struct $name:ident {
            $( $(#[$inner:meta])* pub $field:ident: $type:ty, )*
        }
    )+) => {$(
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        $(#[$outer])*
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $(
                $(#[$inner])*
                #[serde(
                    skip_serializing_if = "crate::wire::is_default",
                    deserialize_with = "crate::wire::null_as_default"
                )]
                pub $field: $type,
            )*
        }
    )+};
}
pub(crate) use omit_empty;

/// Lets an object be read without its spec, which then is the default one; the CRDs allow it.
///
/// kube declares the field plainly, so the type itself has to read from nothing: serde offers a missing field to its type
/// as an absent `Option`. The struct carries `#[serde(remote = "Self")]`, which leaves the derived functions to us.
macro_rules! spec_may_be_absent {
    ($spec:ident) => {
        impl serde::Serialize for $spec {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $spec::serialize(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $spec {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Present($spec);
                impl<'de> serde::Deserialize<'de> for Present {
                    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                        $spec::deserialize(from).map(Present)
                    }
                }
                Ok(Option::<Present>::deserialize(from)?.map(|Present(spec)| spec).unwrap_or_default())
            }
        }
    };
}
pub(crate) use spec_may_be_absent;

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) fn null_as_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro declares what the crate exports")]
mod tests {
    use serde_json::json;

    omit_empty! {
        /// A sample.
        pub struct Sample {
            /// Where zero and absent are the same.
            pub quota: f64,
            /// Where they differ.
            pub limit: Option<i32>,
            /// A list.
            pub names: Vec<String>,
        }
    }

    #[test]
    fn null_and_absent_read_alike_and_unknown_fields_are_ignored() {
        let read: Sample = serde_json::from_value(json!({"quota": null, "names": null, "novelty": {"a": 1}})).unwrap();
        assert_eq!(read, Sample::default());
    }

    #[test]
    fn only_what_holds_something_is_written() {
        let sample = Sample { limit: Some(0), ..Sample::default() };
        assert_eq!(serde_json::to_value(&sample).unwrap(), json!({"limit": 0}));
    }
}
