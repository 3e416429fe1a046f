//! The reservation program as a pod would run it, on a real API server and on a machine without GPUs.
//!
//! `cargo test -p kai-reservation --test e2e_reservation -- --ignored`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use test_cluster::{Cluster, Options, Progress};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_a_reservation_reports_its_gpu_and_idles() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clusters");
    let options = Options { name: "e2e-reservation".to_owned(), base, nodes: 1, gpus: 1, operators: Vec::new() };
    let cluster =
        Cluster::start(&options, &Progress::start("e2e-reservation")).unwrap_or_else(|fault| panic!("{fault}"));
    let kubectl = cluster.kubectl();
    let pod = |name: &str, annotations: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: {{{annotations}}}}}, \
             spec: {{containers: [{{name: main, image: any}}]}}}}"
        )
    };
    kubectl.apply(&pod("known", "run.ai/reserve_for_gpu_index: GPU-1")).unwrap();
    kubectl.apply(&pod("unknown", "")).unwrap();
    let program = |pod: &str| {
        let mut command = program();
        command.env("KUBECONFIG", &cluster.state().kubeconfig).env("POD_NAMESPACE", "default").env("POD_NAME", pod);
        command
    };

    // It is known already, from before a restart.
    let mut idle = program("known").stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(idle.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "pod default/known holds GPU GPU-1\n");
    assert_eq!(idle.try_wait().unwrap(), None, "it stays for as long as the GPU is held");
    assert!(Command::new("kill").args(["-TERM", &idle.id().to_string()]).status().unwrap().success());
    assert!(idle.wait().unwrap().success());

    let failed = program("unknown").output().unwrap();
    assert!(!failed.status.success());
    assert!(words(&failed).starts_with("NVML does not answer: "), "{}", words(&failed));
    let missing = program("missing").output().unwrap();
    assert!(words(&missing).starts_with("cannot read pod default/missing: "), "{}", words(&missing));
}

#[test]
fn a_pod_without_its_name_in_the_environment_is_refused() {
    let refused = program().output().unwrap();
    assert!(!refused.status.success());
    assert_eq!(
        words(&refused),
        "the environment variable POD_NAMESPACE is not set; the pod should set it to its own metadata\n"
    );
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kai-reservation"));
    command.env_remove("POD_NAME").env_remove("POD_NAMESPACE");
    command
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
