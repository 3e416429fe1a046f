//! Many new jobs at once: an empty cluster, 10 pods a node in gangs of every kind, about nine tenths of all GPUs.

use crate::cluster::{BUILD, BUILD_PREEMPTIBLE, Cluster, Gpus, JobSpec, PodRequest, TRAIN};

const PODS_PER_NODE: usize = 10;

/// One kind of gang.
struct Kind {
    /// Its part of all pods, in thousandths.
    permille: usize,
    pods: usize,
    min: usize,
    gpus: Gpus,
}

/// GPUs per thousand pods: 112 + 128 + 160 + 180 + 60 + 80 = 720 of 800.
const KINDS: [Kind; 8] = [
    Kind { permille: 14, pods: 8, min: 8, gpus: Gpus::Whole(8) },
    Kind { permille: 32, pods: 4, min: 4, gpus: Gpus::Whole(4) },
    Kind { permille: 80, pods: 2, min: 2, gpus: Gpus::Whole(2) },
    // Elastic: half of it is enough to start.
    Kind { permille: 180, pods: 16, min: 8, gpus: Gpus::Whole(1) },
    Kind { permille: 60, pods: 1, min: 1, gpus: Gpus::Whole(1) },
    Kind { permille: 160, pods: 4, min: 4, gpus: Gpus::Half },
    Kind { permille: 274, pods: 8, min: 4, gpus: Gpus::None },
    Kind { permille: 200, pods: 1, min: 1, gpus: Gpus::None },
];

pub(super) fn fill(cluster: &mut Cluster) {
    let total = cluster.size.pending.unwrap_or(PODS_PER_NODE * cluster.size.nodes);
    let mut jobs = Vec::new();
    let mut left = total;
    for (index, kind) in KINDS.iter().enumerate() {
        // The last kind has single pods and takes what rounding left over.
        let last = index == KINDS.len() - 1;
        let gangs = if last { left } else { total * kind.permille / 1000 / kind.pods };
        left -= gangs * kind.pods;
        for _ in 0..gangs {
            let spec = JobSpec::pending(kind.pods, ask(cluster, kind.gpus));
            jobs.push(JobSpec { min: kind.min, priority: priority(cluster), ..spec });
        }
    }
    cluster.shuffle(&mut jobs);
    for (index, job) in jobs.into_iter().enumerate() {
        cluster.add_job(index, job);
    }
}

/// People ask for different amounts of CPU beside the same GPUs: three sizes of each.
fn ask(cluster: &mut Cluster, gpus: Gpus) -> PodRequest {
    let size = cluster.random_below(3) as i64;
    let usual = match gpus {
        Gpus::None => PodRequest::cpu_only(1 + size),
        Gpus::Half => PodRequest::half(),
        Gpus::Whole(count) => PodRequest::whole(count),
    };
    PodRequest { cpu_milli: usual.cpu_milli + size * usual.cpu_milli / 2, ..usual }
}

/// Mostly training; one in twenty must not be preempted and so must stay within quota.
fn priority(cluster: &mut Cluster) -> i32 {
    match cluster.random_below(20) {
        0 => BUILD,
        1..4 => BUILD_PREEMPTIBLE,
        _ => TRAIN,
    }
}
