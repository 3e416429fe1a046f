//! KAI's own programs in a cluster, to compare with: started one by one, as the administrator, without its operator.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::cluster::create;
use crate::control_plane::{Flags, answers};
use crate::programs::UpstreamPrograms;
use crate::{Cluster, Error, Progress, manifests, ports};

impl Cluster {
    /// Starts KAI in place of our own programs, and builds it first if that was never done.
    pub fn start_upstream_kai(&mut self, progress: &Progress) -> Result<(), Error> {
        let UpstreamPrograms { binder, podgrouper, queue_controller, scheduler, rest } =
            UpstreamPrograms::find_or_build(progress)?;
        create(&self.kubectl(), &manifests::list(&places()))?;
        self.on_free_ports(|cluster| cluster.start_rest(&rest))?;
        let kubeconfig = self.state().kubeconfig.clone();
        let program = |path: &PathBuf, own: &[(&str, &str)]| {
            let mut flags = Flags::of(path);
            for (flag, value) in own {
                flags.text(flag, value);
            }
            flags.0.env("KUBECONFIG", &kubeconfig);
            flags
        };
        let on = |mut flags: Flags, flag: &str, port: u16| -> Command {
            flags.text(flag, &format!("127.0.0.1:{port}"));
            flags.0
        };
        let no_metrics = ("metrics-bind-address", "0");
        self.start_program("upstream-podgrouper", |port| {
            on(program(&podgrouper, &[no_metrics]), "health-probe-bind-address", port)
        })?;
        self.start_program("upstream-binder", |port| {
            on(program(&binder, &[no_metrics, ("fake-gpu-nodes", "true")]), "health-probe-bind-address", port)
        })?;
        self.start_program("upstream-queuecontroller", |port| {
            on(program(&queue_controller, &[("enable-webhook", "false")]), "metrics-listen-address", port)
        })?;
        self.start_program("upstream-scheduler", |port| {
            // A possible port would be opened on all interfaces; an impossible one is not opened.
            let own = [("plugin-server-port", "-1"), ("leader-elect", "false")];
            on(program(&scheduler, &own), "listen-address", port)
        })?;
        progress.report("KAI works");
        Ok(())
    }

    /// Its webhook for pods and its pod group controller.
    fn start_rest(&mut self, program: &PathBuf) -> Result<(), Error> {
        let [probes, webhooks] = ports::free()?;
        let certificates = self.dir.join("upstream-rest");
        self.credentials.copy_server_cert(&certificates)?;
        let mut flags = Flags::of(program);
        flags.path("kubeconfig", &self.state().kubeconfig);
        flags.text("health-probe-bind-address", &format!("127.0.0.1:{probes}"));
        flags.text("webhook-port", &webhooks.to_string());
        flags.path("webhook-cert-dir", &certificates);
        self.spawn("upstream-rest", flags.0)?;
        self.wait("upstream-rest", "KAI's webhook to answer", |_| answers(probes) && answers(webhooks))?;
        let authority =
            fs::read(&self.credentials.authority).map_err(Error::io("read", &self.credentials.authority))?;
        create(&self.kubectl(), &manifests::list(&webhook_configurations(webhooks, &ByteString(authority))))
    }
}

/// Namespaces and an account that its chart would make.
fn places() -> [Value; 3] {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let reservation = "kai-resource-reservation";
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": reservation, "namespace": reservation},
    });
    [namespace("kai-scheduler"), namespace(reservation), account]
}

fn webhook_configurations(port: u16, authority: &ByteString) -> [Value; 2] {
    let configuration = |kind: &str, path: &str, operations: &[&str]| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "upstream"},
            "webhooks": [{
                "name": "upstream.kai.test",
                "clientConfig": {"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": authority},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": operations}],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        })
    };
    [
        configuration("MutatingWebhookConfiguration", "/mutate--v1-pod", &["CREATE"]),
        configuration("ValidatingWebhookConfiguration", "/validate--v1-pod", &["CREATE", "UPDATE"]),
    ]
}
