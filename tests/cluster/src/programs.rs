//! The programs of a cluster: taken from `KUBEBUILDER_ASSETS`, or built from Go modules once and kept by version.
//!
//! Each component has a folder in `go/` with its exact dependencies and their checksums, so a build is the same
//! everywhere. Beside each kept program lies the fingerprint of
//! its build (version, flags, dependencies); a program with another one is built anew.
//! Operators are built when they are asked for, and what they want to find in a cluster is kept beside them as well.
//! So are KAI's own programs, to compare with, and those that measure a cluster.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use crate::process::tail;
use crate::{Error, Operator, Progress, cache_dir, operators};

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    pub etcd: PathBuf,
    pub api_server: PathBuf,
    pub controller_manager: PathBuf,
    pub kubectl: PathBuf,
    pub kwok: PathBuf,
}

/// An operator's program, and what it wants to find in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct OperatorFiles {
    pub(crate) program: PathBuf,
    pub(crate) manifests: PathBuf,
}

/// KAI's own programs.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamPrograms {
    pub(crate) binder: PathBuf,
    pub(crate) podgrouper: PathBuf,
    pub(crate) queue_controller: PathBuf,
    pub(crate) scheduler: PathBuf,
    /// A main of this repository, with what has no flag to listen on loopback only.
    pub(crate) rest: PathBuf,
}

/// Programs that measure a cluster.
#[derive(Clone, Debug)]
pub struct MonitoringPrograms {
    pub(crate) prometheus: PathBuf,
    /// Tells Prometheus about nodes.
    pub(crate) kube_state_metrics: PathBuf,
}

/// A Go module of ours in `go/`, and what is built from it.
struct Component {
    folder: &'static str,
    module: &'static str,
    version: &'static str,
    /// Build tags, separated by commas.
    tags: &'static str,
    /// Variables to set, so that programs know their version.
    ldflags: &'static [(&'static str, &'static str)],
    programs: &'static [Program],
    /// Folder of the module from which kustomize makes what the program wants to find in a cluster.
    manifests: Option<&'static str>,
}

struct Program {
    name: &'static str,
    package: &'static str,
    /// Whether it is one of those that `KUBEBUILDER_ASSETS` stands for.
    asset: bool,
}

const ETCD: Component = Component {
    folder: "etcd",
    module: "go.etcd.io/etcd/server/v3",
    version: "3.6.6",
    tags: "",
    ldflags: &[],
    programs: &[Program { name: "etcd", package: "go.etcd.io/etcd/server/v3", asset: true }],
    manifests: None,
};

const KUBERNETES: Component = Component {
    folder: "kubernetes",
    module: "k8s.io/kubernetes",
    version: "1.34.3",
    tags: "",
    ldflags: &[
        ("k8s.io/component-base/version.gitVersion", "v1.34.3"),
        ("k8s.io/component-base/version.gitMajor", "1"),
        ("k8s.io/component-base/version.gitMinor", "34"),
        ("k8s.io/component-base/version.gitTreeState", "clean"),
    ],
    programs: &[
        Program { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", asset: true },
        Program {
            name: "kube-controller-manager",
            package: "k8s.io/kubernetes/cmd/kube-controller-manager",
            asset: false,
        },
        Program { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl", asset: true },
    ],
    manifests: None,
};

const KWOK: Component = Component {
    folder: "kwok",
    module: "sigs.k8s.io/kwok",
    version: "0.7.0",
    tags: "",
    // It knows its version from its source.
    ldflags: &[],
    programs: &[Program { name: "kwok", package: "sigs.k8s.io/kwok/cmd/kwok", asset: false }],
    manifests: None,
};

const KUBERAY: Component = Component {
    folder: "kuberay",
    module: "github.com/ray-project/kuberay/ray-operator",
    version: "1.5.1",
    tags: "",
    ldflags: &[],
    programs: &[Program {
        name: "kuberay-operator",
        package: "github.com/ray-project/kuberay/ray-operator",
        asset: false,
    }],
    manifests: Some("config/crd"),
};

const TRAINING: Component = Component {
    folder: "training",
    module: "github.com/kubeflow/training-operator",
    version: "1.9.3",
    tags: "",
    ldflags: &[],
    // A main of ours: see there.
    programs: &[Program { name: "training-operator", package: "kai.test/cluster/training", asset: false }],
    manifests: Some("manifests/base/crds"),
};

const JOBSET: Component = Component {
    folder: "jobset",
    module: "sigs.k8s.io/jobset",
    version: "0.8.0",
    tags: "",
    ldflags: &[],
    programs: &[Program { name: "jobset", package: "sigs.k8s.io/jobset", asset: false }],
    manifests: Some("config/default"),
};

const LWS: Component = Component {
    folder: "lws",
    module: "sigs.k8s.io/lws",
    version: "0.6.0",
    tags: "",
    ldflags: &[],
    programs: &[Program { name: "lws", package: "sigs.k8s.io/lws/cmd", asset: false }],
    manifests: Some("config/default"),
};

const UPSTREAM: Component = Component {
    folder: "kai",
    module: "github.com/NVIDIA/KAI-scheduler",
    version: "0.12.0",
    tags: "",
    ldflags: &[],
    programs: &[
        Program { name: "upstream-binder", package: "github.com/NVIDIA/KAI-scheduler/cmd/binder", asset: false },
        Program {
            name: "upstream-podgrouper",
            package: "github.com/NVIDIA/KAI-scheduler/cmd/podgrouper",
            asset: false,
        },
        Program {
            name: "upstream-queuecontroller",
            package: "github.com/NVIDIA/KAI-scheduler/cmd/queuecontroller",
            asset: false,
        },
        Program { name: "upstream-scheduler", package: "github.com/NVIDIA/KAI-scheduler/cmd/scheduler", asset: false },
        Program { name: "upstream-rest", package: "kai.test/cluster/kai", asset: false },
    ],
    manifests: None,
};

const PROMETHEUS: Component = Component {
    folder: "prometheus",
    module: "github.com/prometheus/prometheus",
    // The module's own count: this is Prometheus 3.11.3.
    version: "0.311.3",
    // Its targets are written in a file. Whom else it could ask for them is most of what there is to build.
    tags: "remove_all_sd",
    ldflags: &[],
    programs: &[Program {
        name: "prometheus",
        package: "github.com/prometheus/prometheus/cmd/prometheus",
        asset: false,
    }],
    manifests: None,
};

const KUBE_STATE_METRICS: Component = Component {
    folder: "kube-state-metrics",
    module: "k8s.io/kube-state-metrics/v2",
    version: "2.18.0",
    tags: "",
    ldflags: &[],
    programs: &[Program { name: "kube-state-metrics", package: "k8s.io/kube-state-metrics/v2", asset: false }],
    manifests: None,
};

impl Programs {
    /// Finds all programs, and builds those that are missing.
    pub fn find_or_build(progress: &Progress) -> Result<Self, Error> {
        let store = Store::open()?;
        let [etcd] = store.find_or_build(&ETCD, progress)?;
        let [api_server, controller_manager, kubectl] = store.find_or_build(&KUBERNETES, progress)?;
        let [kwok] = store.find_or_build(&KWOK, progress)?;
        Ok(Self { etcd, api_server, controller_manager, kubectl, kwok })
    }
}

impl OperatorFiles {
    /// Finds an operator, and builds it if it is missing. Needs the `kubectl` of [`Programs`].
    pub(crate) fn find_or_build(operator: Operator, progress: &Progress) -> Result<Self, Error> {
        let component = match operator {
            Operator::Kuberay => &KUBERAY,
            Operator::Training => &TRAINING,
            Operator::Jobset => &JOBSET,
            Operator::Lws => &LWS,
        };
        let [program] = Store::open()?.find_or_build(component, progress)?;
        Ok(Self { manifests: beside(&program, "json"), program })
    }
}

impl UpstreamPrograms {
    /// Finds them, and builds those that are missing.
    pub(crate) fn find_or_build(progress: &Progress) -> Result<Self, Error> {
        let [binder, podgrouper, queue_controller, scheduler, rest] =
            Store::open()?.find_or_build(&UPSTREAM, progress)?;
        Ok(Self { binder, podgrouper, queue_controller, scheduler, rest })
    }
}

impl MonitoringPrograms {
    /// Finds them, and builds those that are missing.
    pub fn find_or_build(progress: &Progress) -> Result<Self, Error> {
        let store = Store::open()?;
        let [prometheus] = store.find_or_build(&PROMETHEUS, progress)?;
        let [kube_state_metrics] = store.find_or_build(&KUBE_STATE_METRICS, progress)?;
        Ok(Self { prometheus, kube_state_metrics })
    }
}

struct Store {
    bin: PathBuf,
    assets: Option<PathBuf>,
}

impl Store {
    fn open() -> Result<Self, Error> {
        let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        Ok(Self { bin: cache_dir()?.join("bin"), assets })
    }

    fn find_or_build<const N: usize>(&self, component: &Component, progress: &Progress) -> Result<[PathBuf; N], Error> {
        let build_fingerprint = component.build_fingerprint()?;
        if !self.missing(component, &build_fingerprint)?.is_empty() {
            let _lock = self.lock(progress)?;
            // Another process may have built it meanwhile.
            let missing = self.missing(component, &build_fingerprint)?;
            if !missing.is_empty() {
                self.build(component, &missing, &build_fingerprint, progress)?;
            }
        }
        let paths: Vec<PathBuf> = component.programs.iter().map(|program| self.path(component, program)).collect();
        Ok(paths.try_into().expect("as many as the component has"))
    }

    fn path(&self, component: &Component, program: &Program) -> PathBuf {
        match &self.assets {
            Some(assets) if program.asset => assets.join(program.name),
            _ => self.bin.join(format!("{}-{}", program.name, component.version)),
        }
    }

    /// Programs that must be built first.
    fn missing<'a>(&self, component: &'a Component, build_fingerprint: &str) -> Result<Vec<&'a Program>, Error> {
        let mut missing = Vec::new();
        for program in component.programs {
            let path = self.path(component, program);
            match &self.assets {
                Some(assets) if program.asset => {
                    if !path.is_file() {
                        return Err(Error::NoAsset { assets: assets.clone(), program: program.name });
                    }
                }
                _ => {
                    let kept = path.is_file()
                        && fs::read_to_string(beside(&path, "recipe")).is_ok_and(|kept| kept == build_fingerprint);
                    if !kept {
                        missing.push(program);
                    }
                }
            }
        }
        Ok(missing)
    }

    /// One builder at a time, in all processes. Released when dropped, or when its process ends.
    fn lock(&self, progress: &Progress) -> Result<File, Error> {
        fs::create_dir_all(&self.bin).map_err(Error::io("create", &self.bin))?;
        let path = self.bin.join("lock");
        let lock = File::create(&path).map_err(Error::io("create", &path))?;
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => progress.report("waiting for another build to end"),
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
        }
        lock.lock().map_err(Error::io("lock", &path))?;
        Ok(lock)
    }

    fn build(
        &self,
        component: &Component,
        missing: &[&Program],
        build_fingerprint: &str,
        progress: &Progress,
    ) -> Result<(), Error> {
        let names: Vec<&str> = missing.iter().map(|program| program.name).collect();
        let what = format!("{} {}", names.join(", "), component.version);
        progress.report(format_args!("building {what}: once, some minutes"));
        let fresh = self.bin.join(format!("new-{}", component.folder));
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(Error::io("remove", &fresh))?;
        }
        fs::create_dir_all(&fresh).map_err(Error::io("create", &fresh))?;
        let log = self.bin.join(format!("build-{}.log", component.folder));
        let output = File::create(&log).map_err(Error::io("create", &log))?;
        // Low priority: people work on the machine meanwhile.
        let status = Command::new("nice")
            .args(["-n", "10", "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"])
            .arg(format!("-tags={}", component.tags))
            .arg(format!("-ldflags={}", component.version_ldflags()))
            // With a slash at its end it is a folder, even for a single program.
            .arg("-o")
            .arg(fresh.join(""))
            .args(missing.iter().map(|program| program.package))
            .current_dir(component.dir())
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(Error::io("open", &log))?)
            .stderr(output)
            .status()
            .map_err(|source| Error::NoGo { what: what.clone(), source })?;
        if !status.success() {
            // 127 is how `nice` says that there is no such program.
            if status.code() == Some(127) {
                return Err(Error::NoGo { what, source: io::Error::from(io::ErrorKind::NotFound) });
            }
            return Err(Error::Build { what, status, tail: tail(&log), log });
        }
        for program in missing {
            let path = self.path(component, program);
            let built = fresh.join(package_name(program.package));
            let kept_fingerprint = beside(&path, "recipe");
            // The fingerprint last: it says that the program is whole. Removed first, in case this process ends in between.
            let _ = fs::remove_file(&kept_fingerprint);
            fs::rename(&built, &path).map_err(Error::io("move", &built))?;
            if let Some(folder) = component.manifests {
                let manifests = beside(&path, "json");
                fs::write(&manifests, self.render(component, folder)?).map_err(Error::io("write", &manifests))?;
            }
            fs::write(&kept_fingerprint, build_fingerprint).map_err(Error::io("write", &kept_fingerprint))?;
        }
        fs::remove_dir_all(&fresh).map_err(Error::io("remove", &fresh))?;
        progress.report(format_args!("built {what}"));
        Ok(())
    }

    /// What kustomize makes of a folder of the component's module, which was downloaded for the build.
    fn render(&self, component: &Component, folder: &str) -> Result<String, Error> {
        let mut list = Command::new("go");
        list.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", component.module]);
        list.current_dir(component.dir()).env("GOWORK", "off");
        let folder = Path::new(output(list)?.trim()).join(folder);
        let [_, _, kubectl] = KUBERNETES.programs else { unreachable!("kubectl is the last of three") };
        let mut kustomize = Command::new(self.path(&KUBERNETES, kubectl));
        kustomize.arg("kustomize").arg(&folder);
        let objects = operators::kinds_and_webhooks(&output(kustomize)?);
        objects.map_err(|error| Error::io("use", &folder)(io::Error::other(error)))
    }
}

fn output(mut command: Command) -> Result<String, Error> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output().map_err(Error::io("start", &program))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Io { what: format!("{command:?}"), source: io::Error::other(message) });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Component {
    fn dir(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(self.folder)
    }

    fn version_ldflags(&self) -> String {
        let variables = self.ldflags.iter().map(|(variable, value)| format!("-X {variable}={value}"));
        ["-s -w".to_owned()].into_iter().chain(variables).collect::<Vec<_>>().join(" ")
    }

    /// Everything of ours that a build depends on.
    fn build_fingerprint(&self) -> Result<String, Error> {
        let mut text = format!("{} {}\n-ldflags {}\n", self.module, self.version, self.version_ldflags());
        if !self.tags.is_empty() {
            text += &["-tags ", self.tags, "\n"].concat();
        }
        if let Some(manifests) = self.manifests {
            text += &["manifests of ", manifests, "\n"].concat();
        }
        let main = self.dir().join("main.go");
        let files = ["go.mod", "go.sum"].map(|name| self.dir().join(name));
        for path in files.into_iter().chain(main.exists().then_some(main)) {
            text += &fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        }
        Ok(text)
    }
}

/// A file kept with a program.
fn beside(program: &Path, ending: &str) -> PathBuf {
    let mut name = program.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{ending}"));
    program.with_file_name(name)
}

/// What `go build` calls the program: the last part of the package that is not a major version.
fn package_name(package: &str) -> &str {
    let is_major = |part: &&str| part.strip_prefix('v').is_none_or(|rest| rest.parse::<u32>().is_err());
    package.rsplit('/').find(is_major).unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENTS: [Component; 10] =
        [ETCD, KUBERNETES, KWOK, KUBERAY, TRAINING, JOBSET, LWS, UPSTREAM, PROMETHEUS, KUBE_STATE_METRICS];

    #[test]
    fn versions_are_those_of_the_go_modules() {
        for component in COMPONENTS {
            let text = fs::read_to_string(component.dir().join("go.mod")).unwrap();
            let wanted = format!("{} v{}", component.module, component.version);
            assert!(text.lines().any(|line| line.contains(&wanted)), "{wanted} is not in {}/go.mod", component.folder);
            for (variable, value) in component.ldflags.iter().filter(|(variable, _)| variable.ends_with("ersion")) {
                assert_eq!(*value, format!("v{}", component.version), "{variable}");
            }
        }
    }

    #[test]
    fn go_modules_list_every_program() {
        for component in COMPONENTS {
            let text = fs::read_to_string(component.dir().join("go.mod")).unwrap();
            for program in component.programs {
                let ours = format!("module {}", program.package);
                let named = |line: &str| line.trim_start_matches("tool ") == program.package || line == ours;
                let listed = text.lines().any(|line| named(line.trim()));
                assert!(listed, "{} is not a tool of {}/go.mod", program.package, component.folder);
            }
        }
    }

    #[test]
    fn programs_are_called_as_go_calls_them() {
        assert_eq!(package_name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(package_name("k8s.io/kubernetes/cmd/kubectl"), "kubectl");
        assert_eq!(package_name("example.com/vine"), "vine");
    }

    fn store(name: &str) -> Store {
        let bin = env::temp_dir().join(format!("test-cluster-{}-{name}", std::process::id()));
        fs::create_dir_all(&bin).unwrap();
        Store { bin, assets: None }
    }

    fn names(missing: &[&Program]) -> Vec<&'static str> {
        missing.iter().map(|program| program.name).collect()
    }

    #[test]
    fn a_program_of_another_recipe_is_built_anew() {
        let store = store("recipes");
        for (name, build_fingerprint) in [("kube-apiserver", "new"), ("kubectl", "old")] {
            let path = store.bin.join(format!("{name}-1.34.3"));
            fs::write(&path, "").unwrap();
            fs::write(beside(&path, "recipe"), build_fingerprint).unwrap();
        }
        let missing = store.missing(&KUBERNETES, "new").unwrap();
        assert_eq!(names(&missing), ["kube-controller-manager", "kubectl"]);
        fs::remove_dir_all(&store.bin).unwrap();
    }

    #[test]
    fn assets_are_used_and_never_built() {
        let store = store("assets");
        let store = Store { assets: Some(store.bin.clone()), ..store };
        for name in ["etcd", "kube-apiserver"] {
            fs::write(store.bin.join(name), "").unwrap();
        }
        assert!(store.missing(&ETCD, "any").unwrap().is_empty());
        assert_eq!(store.path(&ETCD, &ETCD.programs[0]), store.bin.join("etcd"));
        let error = store.missing(&KUBERNETES, "any").map(|missing| names(&missing)).unwrap_err();
        assert!(error.to_string().contains("no kubectl in it"), "{error}");
        fs::write(store.bin.join("kubectl"), "").unwrap();
        assert_eq!(names(&store.missing(&KUBERNETES, "any").unwrap()), ["kube-controller-manager"]);
        fs::remove_dir_all(&store.bin).unwrap();
    }

    #[test]
    fn a_second_builder_waits() {
        let store = store("lock");
        let held = store.lock(&Progress::start("test")).unwrap();
        let second = File::open(store.bin.join("lock")).unwrap();
        assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        assert!(second.try_lock().is_ok());
        fs::remove_dir_all(&store.bin).unwrap();
    }
}
