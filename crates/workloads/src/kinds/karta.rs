//! Declarative grouping by a Karta: not read yet, such kinds get the base rule.
use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::workload::Workload;
use serde_json::Value;
pub fn describing<'a>(_workload: &Workload<'a>) -> Option<&'a Value> {
    None
}
pub fn group(workload: &Workload<'_>, _karta: &Value) -> Result<GroupSpec, GroupError> {
    Ok(workload.base())
}
