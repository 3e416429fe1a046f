//! Operators whose pods kai schedules: what each wants to find in a cluster, and how it is started.
//!
//! They run as the administrator. Their webhooks are called where they listen, on loopback, with the certificate of
//! the API server, which is good for that address.
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use k8s_openapi::ByteString;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::control_plane::{Flags, LaunchContext};
use crate::programs::OperatorFiles;
use crate::{Error, Programs, Progress};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operator {
    /// RayCluster, RayJob and RayService, with our scheduler as its batch scheduler
    Kuberay,
    /// Kubeflow's PyTorchJob, MPIJob, TFJob, XGBoostJob, JAXJob and PaddleJob
    Training,
    /// JobSet
    Jobset,
    /// LeaderWorkerSet
    Lws,
}

/// Where an operator answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) probes: u16,
    pub(crate) webhooks: u16,
}

/// An operator with its program and its objects.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) operator: Operator,
    program: PathBuf,
    kinds: Vec<Value>,
    webhooks: Vec<Value>,
}

impl Operator {
    pub const ALL: [Self; 4] = [Self::Kuberay, Self::Training, Self::Jobset, Self::Lws];

    /// Of its process, its log and its program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kuberay => "kuberay-operator",
            Self::Training => "training-operator",
            Self::Jobset => "jobset",
            Self::Lws => "lws",
        }
    }

    /// Builds it, if that was never done. The other programs must have been built before.
    pub fn build(self, _: &Programs, progress: &Progress) -> Result<(), Error> {
        OperatorFiles::find_or_build(self, progress).map(|_| ())
    }
}

impl Installation {
    pub(crate) fn prepare(operator: Operator, progress: &Progress) -> Result<Self, Error> {
        let OperatorFiles { program, manifests } = OperatorFiles::find_or_build(operator, progress)?;
        let text = fs::read_to_string(&manifests).map_err(Error::io("read", &manifests))?;
        let objects: Vec<Value> =
            serde_json::from_str(&text).map_err(|error| Error::io("use", &manifests)(error.into()))?;
        let (kinds, webhooks) = objects.into_iter().partition(|object| object["kind"] == CRD);
        Ok(Self { operator, program, kinds, webhooks })
    }

    pub(crate) fn kinds(&self) -> &[Value] {
        &self.kinds
    }

    pub(crate) fn has_webhooks(&self) -> bool {
        !self.webhooks.is_empty()
    }

    /// The configurations of its webhooks.
    pub(crate) fn webhooks(&self, port: u16, authority: &Path) -> Result<Vec<Value>, Error> {
        let authority = ByteString(fs::read(authority).map_err(Error::io("read", authority))?);
        let mut configurations = self.webhooks.clone();
        for configuration in &mut configurations {
            for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
                let url = format!("https://127.0.0.1:{port}{path}");
                webhook["clientConfig"] = json!({"url": url, "caBundle": authority});
            }
        }
        Ok(configurations)
    }

    pub(crate) fn command(&self, context: &LaunchContext<'_>, ports: Ports) -> Result<Command, Error> {
        let mut flags = Flags::of(&self.program);
        flags.path("kubeconfig", context.kubeconfig);
        flags.text("health-probe-bind-address", &format!("127.0.0.1:{}", ports.probes));
        match self.operator {
            Operator::Kuberay => {
                flags.text("metrics-addr", "0");
                flags.text("enable-leader-election", "false");
                flags.text("log-stdout-encoder", "console");
                flags.text("batch-scheduler", "kai-scheduler");
            }
            Operator::Training => {}
            Operator::Jobset => {
                flags.path("config", self.configure(context, "config.jobset.x-k8s.io/v1alpha1", ports)?);
            }
            Operator::Lws => flags.path("config", self.configure(context, "config.lws.x-k8s.io/v1alpha1", ports)?),
        }
        Ok(flags.0)
    }

    /// JobSet and LeaderWorkerSet are brothers, and are configured alike.
    fn configure(&self, context: &LaunchContext<'_>, version: &str, ports: Ports) -> Result<PathBuf, Error> {
        let dir = context.dir.join(self.operator.name());
        context.credentials.copy_server_cert(&dir)?;
        let configuration = json!({
            "apiVersion": version,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": false},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{}", ports.probes)},
            "webhook": {"host": "127.0.0.1", "port": ports.webhooks, "certDir": dir},
            "internalCertManagement": {"enable": false},
        });
        let path = dir.join("config.yaml");
        fs::write(&path, configuration.to_string()).map_err(Error::io("write", &path))?;
        Ok(path)
    }
}

const CRD: &str = "CustomResourceDefinition";

/// Of all that an operator's authors install, what it needs here, as JSON.
pub(crate) fn kinds_and_webhooks(manifests: &str) -> Result<String, yaml_serde::Error> {
    let mut kept = Vec::new();
    for document in yaml_serde::Deserializer::from_str(manifests) {
        let mut object = Value::deserialize(document)?;
        match object["kind"].as_str() {
            Some(CRD) => {
                // Each has one version that is in use, so there is nothing to convert.
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.remove("conversion");
                }
                kept.push(object);
            }
            Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => kept.push(object),
            _ => {}
        }
    }
    Ok(Value::from(kept).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_and_webhooks_are_kept() {
        let manifests = "
kind: Namespace
metadata: {name: jobset-system}
---
kind: CustomResourceDefinition
metadata: {name: jobsets}
spec: {group: x, conversion: {strategy: Webhook}}
---
kind: Deployment
---
kind: ValidatingWebhookConfiguration
webhooks: []
";
        let kept: Value = serde_json::from_str(&kinds_and_webhooks(manifests).unwrap()).unwrap();
        let expected = json!([
            {"kind": CRD, "metadata": {"name": "jobsets"}, "spec": {"group": "x"}},
            {"kind": "ValidatingWebhookConfiguration", "webhooks": []},
        ]);
        assert_eq!(kept, expected);
    }

    #[test]
    fn webhooks_are_called_on_loopback() {
        let webhook = json!({"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/mutate"}}});
        let installation = Installation {
            operator: Operator::Jobset,
            program: PathBuf::new(),
            kinds: Vec::new(),
            webhooks: vec![json!({"kind": "MutatingWebhookConfiguration", "webhooks": [webhook]})],
        };
        let authority = std::env::temp_dir().join(format!("test-cluster-{}-authority", std::process::id()));
        fs::write(&authority, "pem").unwrap();
        let configurations = installation.webhooks(7, &authority).unwrap();
        assert_eq!(
            configurations[0]["webhooks"][0]["clientConfig"],
            json!({"url": "https://127.0.0.1:7/mutate", "caBundle": "cGVt"})
        );
        fs::remove_file(&authority).unwrap();
    }
}
