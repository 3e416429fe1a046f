//! Our own programs, each with the roles that it is shipped with.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use test_cluster::Cluster;

use crate::Failed;

/// Subcommand, service account, arguments.
const PARTS: [(&str, &str, &[&str]); 6] = [
    ("admission", "admission", &["--gpu-sharing-enabled=true"]),
    ("podgrouper", "pod-grouper", &[]),
    ("scheduler", "scheduler", &[]),
    ("binder", "binder", &["--fake-gpu-nodes"]),
    ("podgroupcontroller", "podgroup-controller", &[]),
    ("queuecontroller", "queue-controller", &[]),
];

pub(crate) fn start(cluster: &mut Cluster, kai: &Path) -> Result<(), Failed> {
    let roles = Command::new(kai).arg("rbac").output()?;
    cluster.kubectl().apply(&String::from_utf8(roles.stdout)?)?;
    // Free now, and no other process of this machine is likely to take it in the next second.
    let webhooks = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    for (part, account, arguments) in PARTS {
        let kubeconfig = cluster.kubeconfig_of("kai-scheduler", account, None)?;
        cluster.start_program(part, |port| {
            let mut command = Command::new(kai);
            command.arg(part).arg("--kubeconfig").arg(&kubeconfig).args(arguments);
            command.args(["--listen-address", &format!("127.0.0.1:{port}")]);
            if part == "admission" {
                command.args(["--webhook-addr", &webhooks.to_string()]);
                command.args(["--webhook-url", &format!("https://{webhooks}")]);
            }
            command
        })?;
    }
    Ok(())
}
