//! Whether a node can take the volumes of a pod: how many may be attached, and how much storage is left.

use crate::ids::{NodeId, TaskId};
use crate::ledger::{Ledger, UsageTotals, When};
use crate::outcome::VolumeObstacle;

/// When the node can take the pod's volumes.
pub fn when(ledger: &Ledger<'_>, task: TaskId, node: NodeId) -> Result<When, VolumeObstacle> {
    let volumes = &ledger.snapshot.volumes;
    let Some(need) = ledger.snapshot.task(task).volumes else { return Ok(When::Now) };
    let need = &volumes.needs[need as usize];
    let mut when = When::Now;
    let mut check = |taken: UsageTotals, more: UsageTotals, most: i128, obstacle: VolumeObstacle| {
        if taken.staying + more.staying > most {
            return Err(obstacle);
        }
        if taken.staying + taken.releasing + more.staying + more.releasing > most {
            when = When::Later;
        }
        Ok(())
    };
    let driver = |volume: u32| volumes.drivers[volume as usize];
    for alike in need.attached.chunk_by(|left, right| driver(*left) == driver(*right)) {
        let driver = driver(alike[0]);
        let Some(limit) = volumes.limits[driver as usize][node.index()] else { continue };
        // A volume whose last user is being released stays attached for the new pod: count it as staying, not as releasing.
        let mut more = UsageTotals::default();
        for users in alike.iter().map(|volume| ledger.volume_users(node, *volume)) {
            more.staying += i128::from(users.staying() == 0);
            more.releasing -= i128::from(users.staying() == 0 && users.releasing > 0);
        }
        check(ledger.volumes_attached(node, driver), more, i128::from(limit), VolumeObstacle::Driver(driver))?;
    }
    for (class, amount) in &need.storage_needs {
        let Some(pool) = volumes.storage_classes[*class as usize][node.index()] else { continue };
        let more = UsageTotals { staying: i128::from(*amount), releasing: 0 };
        check(
            ledger.pool_used(pool),
            more,
            volumes.storage_pools[pool as usize].into(),
            VolumeObstacle::Storage(*class),
        )?;
    }
    Ok(when)
}
