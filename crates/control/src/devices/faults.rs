//! Why claims cannot be used, and the texts about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a claim cannot be used anywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ClaimFault {
    /// The pod's own name for a claim that is yet to be made from a template.
    NotCreated {
        name: String,
    },
    Missing {
        claim: String,
    },
    TooManyConsumers {
        claim: String,
    },
    NoQueueLabel {
        claim: String,
        key: String,
    },
    WrongQueueLabel {
        claim: String,
        key: String,
        expected: String,
        found: String,
    },
    NoClass {
        claim: String,
        request: String,
        class: String,
    },
    BadSelector {
        claim: String,
        origin: Origin,
        expression: String,
        problem: String,
    },
    UnknownConstraint {
        claim: String,
        request: String,
    },
}

/// Who wrote a selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    Class(String),
    Request(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(name) => write!(out, "device class {name}"),
            Self::Request(name) => write!(out, "request {name}"),
        }
    }
}

impl ClaimFault {
    /// What is wrong and what to do about it.
    pub fn explain(&self) -> String {
        match self {
            Self::NotCreated { name } => format!(
                "its claim {name} has not been made from its template yet; it is made soon after the pod, if the \
                 template exists"
            ),
            Self::Missing { claim } => format!("resource claim {claim} does not exist: create it"),
            Self::TooManyConsumers { claim } => {
                format!("resource claim {claim} has reached its maximum number of consumers (256)")
            }
            Self::NoQueueLabel { claim, key } => {
                format!(
                    "resource claim {claim} asks for GPUs and is shared, but has no label {key}: name its queue there"
                )
            }
            Self::WrongQueueLabel { claim, key, expected, found } => format!(
                "resource claim {claim} belongs to queue {found} by its label {key}, but the pod to queue {expected}"
            ),
            Self::NoClass { claim, request, class } => format!(
                "device class {class} of request {request} of resource claim {claim} does not exist: create it, or \
                 correct deviceClassName"
            ),
            Self::BadSelector { claim, origin, expression, problem } => format!(
                "the selector `{expression}` of {origin}, which resource claim {claim} uses, cannot be understood: {problem}"
            ),
            Self::UnknownConstraint { claim, request } if request.is_empty() => {
                format!("resource claim {claim} has a constraint other than matchAttribute: remove it")
            }
            Self::UnknownConstraint { claim, request } => {
                format!("a constraint of resource claim {claim} names request {request}, which it does not have")
            }
        }
    }
}
