//! How each program is started.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::credentials::Credentials;
use crate::{Error, Programs, manifests};

/// What the programs need to know of each other.
pub(crate) struct LaunchContext<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) kubeconfig: &'a Path,
    pub(crate) programs: &'a Programs,
    pub(crate) credentials: &'a Credentials,
}

/// Whether a program accepts connections.
pub(crate) fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

pub(crate) fn etcd(context: &LaunchContext<'_>, client: u16, peer: u16) -> Command {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut flags = Flags::of(&context.programs.etcd);
    flags.path("data-dir", context.dir.join("etcd"));
    for flag in ["listen-client-urls", "advertise-client-urls"] {
        flags.text(flag, &client);
    }
    for flag in ["listen-peer-urls", "initial-advertise-peer-urls"] {
        flags.text(flag, &peer);
    }
    flags.text("initial-cluster", &format!("default={peer}"));
    // This data need not survive a power failure, and waiting for disks is most of what etcd does.
    flags.text("unsafe-no-fsync", "true");
    flags.text("log-level", "warn");
    flags.0
}

pub(crate) fn api_server(context: &LaunchContext<'_>, port: u16, etcd: u16) -> Command {
    let credentials = context.credentials;
    let mut flags = Flags::of(&context.programs.api_server);
    flags.text("etcd-servers", &format!("http://127.0.0.1:{etcd}"));
    flags.text("bind-address", "127.0.0.1");
    flags.text("advertise-address", "127.0.0.1");
    flags.text("secure-port", &port.to_string());
    flags.path("cert-dir", context.dir.join("apiserver"));
    flags.path("tls-cert-file", &credentials.server_certificate);
    flags.path("tls-private-key-file", &credentials.server_key);
    flags.path("token-auth-file", &credentials.tokens);
    flags.text("service-account-issuer", "https://kubernetes.default.svc");
    flags.path("service-account-key-file", &credentials.service_account_public);
    flags.path("service-account-signing-key-file", &credentials.service_account_key);
    flags.text("service-cluster-ip-range", "10.0.0.0/16");
    flags.text("authorization-mode", "RBAC");
    flags.text("allow-privileged", "true");
    // There is one API server, and it is no service.
    flags.text("endpoint-reconciler-type", "none");
    // Tests ask as fast as they can; being slowed down by fairness among clients would only blur what they measure.
    flags.text("enable-priority-and-fairness", "false");
    flags.0
}

pub(crate) fn controllers(context: &LaunchContext<'_>, port: u16) -> Command {
    let mut flags = Flags::of(&context.programs.controller_manager);
    flags.path("kubeconfig", context.kubeconfig);
    flags.text("leader-elect", "false");
    flags.text("bind-address", "127.0.0.1");
    flags.text("secure-port", &port.to_string());
    flags.path("cert-dir", context.dir.join("controllers"));
    flags.path("service-account-private-key-file", &context.credentials.service_account_key);
    flags.path("root-ca-file", &context.credentials.authority);
    flags.text("use-service-account-credentials", "false");
    flags.text("allocate-node-cidrs", "false");
    // Jobs with thousands of pods should wait for our scheduler, not for their controller.
    flags.text("kube-api-qps", "500");
    flags.text("kube-api-burst", "1000");
    flags.0
}

pub(crate) fn kwok(context: &LaunchContext<'_>) -> Result<Command, Error> {
    let config = context.dir.join("kwok.yaml");
    fs::write(&config, manifests::KWOK).map_err(Error::io("write", &config))?;
    let mut flags = Flags::of(&context.programs.kwok);
    flags.path("kubeconfig", context.kubeconfig);
    flags.path("config", config);
    Ok(flags.0)
}

pub(crate) struct Flags(pub(crate) Command);

impl Flags {
    pub(crate) fn of(program: &PathBuf) -> Self {
        let mut command = Command::new(program);
        // Collecting garbage is a fifth of what an API server does under load, and there is memory enough to do it seldom.
        command.env("GOGC", "400").env("GOMEMLIMIT", "4GiB");
        Self(command)
    }

    pub(crate) fn text(&mut self, flag: &str, value: &str) {
        self.0.arg(format!("--{flag}={value}"));
    }

    pub(crate) fn path(&mut self, flag: &str, value: impl AsRef<Path>) {
        let mut argument = std::ffi::OsString::from(format!("--{flag}="));
        argument.push(value.as_ref());
        self.0.arg(argument);
    }
}
