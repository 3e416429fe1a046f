//! Monitoring of a cluster: kube-state-metrics exports metrics of nodes, Prometheus scrapes these and others.

use std::fs;

use serde_json::{Value, json};

use crate::control_plane::{Flags, answers};
use crate::{Cluster, Error, MonitoringPrograms, ports};

/// What bcrypt makes of `p@ss`, as cheaply as it can.
const PASSWORD_HASH: &str = "$2a$04$ltWWj7jeb0B7.4iETkaU0e9gr4JmRiOjf0oAM1zACsThHf/5o9ygO";

impl Cluster {
    /// Starts kube-state-metrics as the administrator; returns its port.
    pub fn start_kube_state_metrics(&mut self, monitoring: &MonitoringPrograms) -> Result<u16, Error> {
        let name = "kube-state-metrics";
        self.on_free_ports(|cluster| {
            let [port, telemetry] = ports::free()?;
            let mut flags = Flags::of(&monitoring.kube_state_metrics);
            flags.path("kubeconfig", &cluster.state().kubeconfig);
            flags.text("resources", "nodes");
            for (host, value, number) in [("host", "port", port), ("telemetry-host", "telemetry-port", telemetry)] {
                flags.text(host, "127.0.0.1");
                flags.text(value, &number.to_string());
            }
            cluster.spawn(name, flags.0)?;
            cluster.wait(name, &format!("{name} to answer"), |_| answers(port))?;
            Ok(port)
        })
    }

    /// Starts Prometheus with this configuration, on a port that others know beforehand. It answers `kai` with the
    /// password `p@ss`. After [`Cluster::stop_program`] it may be started again, and still knows what it has read.
    pub fn start_prometheus(
        &mut self,
        monitoring: &MonitoringPrograms,
        port: u16,
        configuration: &Value,
    ) -> Result<(), Error> {
        let name = "prometheus";
        let write = |file: &str, content: &Value| {
            let path = self.dir.join(file);
            fs::write(&path, content.to_string()).map_err(Error::io("write", &path)).map(|()| path)
        };
        let config = write("prometheus.yaml", configuration)?;
        let users = write("prometheus-users.yaml", &json!({"basic_auth_users": {"kai": PASSWORD_HASH}}))?;
        let mut flags = Flags::of(&monitoring.prometheus);
        flags.path("config.file", config);
        flags.path("storage.tsdb.path", self.dir.join(name));
        flags.text("web.listen-address", &format!("127.0.0.1:{port}"));
        flags.path("web.config.file", users);
        flags.text("log.level", "warn");
        self.spawn(name, flags.0)?;
        self.wait(name, "prometheus to answer", |_| answers(port))
    }
}
