//! The operators at work: `KubeRay`, the training and MPI operators of Kubeflow, `JobSet`, `LeaderWorkerSet`.
//!
//! Like the controllers of Kubernetes itself, each compares what it wants with what exists, and reconciles.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Cluster;
use super::controllers::{is_complete, owner_reference};
use super::kubelet::{is_leaving, is_over, node_of, phase};
use super::store::uid;
use crate::journal::Event;
use crate::json::object_at;
use crate::manifest::{Id, Kind};
use crate::operators::job_set::{self, Replicated};
use crate::operators::{Role, declared, leader_worker_set, mpi, ray, roles, stateful_set, training};

impl Cluster {
    /// Brings what an operator made for one object to what it wants.
    pub(super) fn reconcile_operated(&mut self, id: &Id, value: &Value) {
        match id.kind {
            Kind::Declared => {
                let roles = self.known_roles(id, value);
                let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                self.reconcile_named_pods(id, value, declared::pods(name, &roles));
            }
            Kind::RayCluster => self.reconcile_ray_cluster(id, value),
            Kind::RayJob => self.reconcile_ray_job(id, value),
            Kind::RayService => self.reconcile_ray_service(id, value),
            Kind::PyTorchJob | Kind::TFJob | Kind::XGBoostJob | Kind::JAXJob => self.reconcile_training(id, value),
            Kind::MPIJob => self.reconcile_mpi(id, value),
            Kind::JobSet => self.reconcile_job_set(id, value),
            Kind::LeaderWorkerSet => self.reconcile_leader_worker_set(id, value),
            Kind::StatefulSet => self.reconcile_stateful_set(id, value),
            _ => {}
        }
    }

    fn reconcile_ray_cluster(&mut self, id: &Id, cluster: &Value) {
        for role in self.known_roles(id, cluster) {
            let group = |pod: &Value| {
                pod.pointer("/metadata/labels").and_then(|labels| labels.get(ray::GROUP)?.as_str().map(str::to_owned))
            };
            let active: Vec<Id> = self
                .active_pods(cluster)
                .into_iter()
                .filter(|pod| self.store.get(pod).and_then(group).as_deref() == Some(&role.name))
                .collect();
            self.delete_surplus(id, &active, role.pods);
            let (base, pod) = ray::pod(cluster, &id.name, &role);
            for _ in active.len()..role.pods as usize {
                let name = self.free_name(id, &base, &format!("{}/{}", uid(cluster), role.name));
                self.add_pod(id, cluster, &name, pod.clone());
            }
        }
    }

    /// A cluster; once all of it runs, a Job that submits the work; and when that is done, perhaps no cluster any more.
    fn reconcile_ray_job(&mut self, id: &Id, job: &Value) {
        if is_complete(job) || job.pointer("/spec/suspend") == Some(&json!(true)) {
            return;
        }
        let Some(cluster) = self.ray_cluster_of(id, job, "/spec/rayClusterSpec") else { return };
        self.set_status(id, "rayClusterName", &json!(cluster.name));
        let submitter = Id::namespaced(Kind::Job, id.namespace.clone(), id.name.clone());
        match self.store.get(&submitter) {
            Some(submitter) if is_complete(submitter) => {
                self.finish_workload(id, "its work is done");
                if job.pointer("/spec/shutdownAfterJobFinishes") == Some(&json!(true)) {
                    self.remove(&cluster);
                }
            }
            Some(_) => {}
            None => {
                let up = self.store.get(&cluster).is_some_and(|value| self.all_run(&cluster, value));
                let role = self.known_roles(id, job).into_iter().find(|role| role.name == "submitter" && up);
                let Some(Role { mut template, .. }) = role else { return };
                ray::schedule(&mut template, job);
                let value = json!({"metadata": {"ownerReferences": [owner_reference(job)]},
                    "spec": {"completions": 1, "template": template}});
                self.create(submitter, value);
            }
        }
    }

    fn reconcile_ray_service(&mut self, id: &Id, service: &Value) {
        if let Some(cluster) = self.ray_cluster_of(id, service, "/spec/rayClusterConfig") {
            self.set_status(id, "activeServiceStatus", &json!({"rayClusterName": cluster.name}));
        }
    }

    /// The cluster that was made for an object, made if need be.
    fn ray_cluster_of(&mut self, id: &Id, owner: &Value, spec: &str) -> Option<Id> {
        let made = self.store.owned_by(uid(owner)).find(|owned| owned.kind == Kind::RayCluster).cloned();
        if made.is_some() {
            return made;
        }
        let cluster = Id::namespaced(Kind::RayCluster, id.namespace.clone(), format!("{}-0", id.name));
        if self.store.get(&cluster).is_some() {
            return None;
        }
        let mut value = ray::cluster_of(owner, spec);
        value["metadata"]["ownerReferences"] = json!([owner_reference(owner)]);
        self.create(cluster.clone(), value);
        Some(cluster)
    }

    /// Whether all pods that an object asks for run.
    fn all_run(&self, id: &Id, value: &Value) -> bool {
        let wanted: u32 = self.known_roles(id, value).iter().map(|role| role.pods).sum();
        let runs = |pod: &Value| phase(pod) == "Running" && !is_leaving(pod);
        let up = self.pods_of(value).filter(|pod| self.store.get(pod).is_some_and(runs)).count();
        up >= wanted as usize
    }

    fn reconcile_training(&mut self, id: &Id, job: &Value) {
        if is_complete(job) {
            return;
        }
        let roles = self.known_roles(id, job);
        let decisive = training::decisive(id.kind, job, &id.name, &roles);
        let done = |name: &String| {
            let pod = Id::namespaced(Kind::Pod, id.namespace.clone(), name.clone());
            self.store.get(&pod).is_some_and(|pod| phase(pod) == "Succeeded")
        };
        if !decisive.is_empty() && decisive.iter().all(done) {
            self.finish_workload(id, &format!("complete after {}", decisive.join(", ")));
            self.clean_pods(job);
            return;
        }
        self.reconcile_named_pods(id, job, training::pods(id.kind, &id.name, &roles));
    }

    fn reconcile_mpi(&mut self, id: &Id, job: &Value) {
        if is_complete(job) {
            return;
        }
        let launcher = Id::namespaced(Kind::Job, id.namespace.clone(), format!("{}-launcher", id.name));
        if self.store.get(&launcher).is_some_and(is_complete) {
            self.finish_workload(id, "its launcher is done");
            self.clean_pods(job);
            return;
        }
        let roles = self.known_roles(id, job);
        let workers = mpi::workers(&id.name, &roles);
        let wanted = workers.len();
        self.reconcile_named_pods(id, job, workers);
        let runs = |pod: &Value| phase(pod) == "Running" && !is_leaving(pod);
        let up = self.pods_of(job).filter(|pod| self.store.get(pod).is_some_and(runs)).count();
        if self.store.get(&launcher).is_none() && (up >= wanted || !mpi::launcher_waits(job)) {
            let Some(mut value) = mpi::launcher(&id.name, &roles) else { return };
            value["metadata"]["ownerReferences"] = json!([owner_reference(job)]);
            self.create(launcher, value);
        }
    }

    fn reconcile_job_set(&mut self, id: &Id, set: &Value) {
        if is_complete(set) {
            return;
        }
        let made: Vec<(Id, Value)> = self
            .store
            .owned_by(uid(set))
            .filter(|owned| owned.kind == Kind::Job)
            .filter_map(|job| Some((job.clone(), self.store.get(job)?.clone())))
            .collect();
        let replicated = job_set::replicated(set);
        let done = |name: &str| made.iter().filter(|(_, job)| job_set::is_of(job, name) && is_complete(job)).count();
        let (enough, targets) = job_set::success(set);
        let counted = || replicated.iter().filter(|job| targets.is_empty() || targets.contains(&job.name));
        let ended: usize = counted().map(|job| done(job.name)).sum();
        let wanted = enough.unwrap_or_else(|| counted().map(|job| job.replicas).sum());
        if ended > 0 && ended >= wanted as usize {
            self.finish_workload(id, &format!("complete after {ended} Job{}", if ended == 1 { "" } else { "s" }));
            for (job, _) in made.iter().filter(|(_, job)| !is_complete(job)) {
                self.remove(job);
            }
            return;
        }
        self.suspend_jobs(&made, job_set::suspended(set));
        for (name, mut job) in self.next_jobs(id, set, &replicated, &made) {
            let name = Id::namespaced(Kind::Job, id.namespace.clone(), name);
            if self.store.get(&name).is_none() {
                job["metadata"]["ownerReferences"] = json!([owner_reference(set)]);
                self.create(name, job);
            }
        }
    }

    /// The Jobs of a set that need not wait for others of it, whether they exist or not.
    fn next_jobs(&self, id: &Id, set: &Value, all: &[Replicated<'_>], made: &[(Id, Value)]) -> Vec<(String, Value)> {
        let full = |job: &Replicated<'_>, to_the_end: bool| {
            let counts = |value: &Value| is_complete(value) || (!to_the_end && self.job_runs(value));
            let count = made.iter().filter(|(_, value)| job_set::is_of(value, job.name) && counts(value)).count();
            count >= job.replicas as usize
        };
        let total = all.iter().map(|job| job.replicas).sum();
        let mut jobs = Vec::new();
        for job in all {
            let may_start = job.after.is_none_or(|(name, to_the_end)| {
                all.iter().find(|other| other.name == name).is_some_and(|other| full(other, to_the_end))
            });
            if !may_start {
                continue;
            }
            jobs.extend((0..job.replicas).map(|index| job_set::job(set, &id.name, job, index, total)));
            if job_set::in_order(set) && !job_set::suspended(set) && !full(job, false) {
                break;
            }
        }
        jobs
    }

    /// Whether as many pods of a Job run or have ended as run at a time.
    fn job_runs(&self, job: &Value) -> bool {
        let wanted = super::controllers::count(job, "/spec/parallelism").unwrap_or(1);
        let up = |pod: &Value| matches!(phase(pod), "Running" | "Succeeded") && !is_leaving(pod);
        self.pods_of(job).filter(|pod| self.store.get(pod).is_some_and(up)).count() >= wanted as usize
    }

    fn suspend_jobs(&mut self, jobs: &[(Id, Value)], suspended: bool) {
        for (id, job) in jobs {
            if job.pointer("/spec/suspend") != Some(&json!(suspended)) && !is_complete(job) {
                self.store.change(id, |job| {
                    if let Some(spec) = object_at(job, &["spec"]) {
                        spec.insert("suspend".to_owned(), json!(suspended));
                    }
                });
                self.to_reconcile.insert(id.clone());
            }
        }
    }

    fn reconcile_leader_worker_set(&mut self, id: &Id, set: &Value) {
        let leaders = Id::namespaced(Kind::StatefulSet, id.namespace.clone(), id.name.clone());
        let wanted = leader_worker_set::leaders(set, &id.name);
        let Some(stored) = self.store.get(&leaders) else {
            let mut value = wanted;
            value["metadata"]["ownerReferences"] = json!([owner_reference(set)]);
            self.create(leaders, value);
            return;
        };
        if stored.get("spec") != wanted.get("spec") {
            let spec = wanted["spec"].clone();
            self.store.change(&leaders, |stored| stored["spec"] = spec);
            self.to_reconcile.insert(leaders.clone());
        }
        let Some(stored) = self.store.get(&leaders).cloned() else { return };
        for leader in self.pods_of(&stored).cloned().collect::<Vec<Id>>() {
            self.reconcile_group(id, set, &leader);
        }
    }

    /// One leader and its workers: made when the leader is there, gone when it goes.
    fn reconcile_group(&mut self, id: &Id, set: &Value, leader: &Id) {
        let Some(value) = self.store.get(leader).cloned() else { return };
        let workers = Id::namespaced(Kind::StatefulSet, id.namespace.clone(), leader.name.clone());
        let lost = self
            .store
            .get(&workers)
            .and_then(|workers| self.pods_of(workers).find(|pod| self.store.get(pod).is_some_and(is_leaving)).cloned());
        if let Some(lost) = lost.filter(|_| leader_worker_set::restarts_whole(set) && !is_leaving(&value)) {
            let node = node_of(&value).map(str::to_owned);
            self.note(
                Event::Delete,
                leader,
                node.as_deref(),
                format!("its group starts anew without pod {}", lost.name),
            );
            self.expect_replacement(leader);
            self.stop_pod(leader);
            self.remove(&workers);
            return;
        }
        if is_leaving(&value) {
            self.remove(&workers);
            return;
        }
        let waits = leader_worker_set::workers_wait(set) && phase(&value) != "Running";
        if self.store.get(&workers).is_none() && leader_worker_set::size(set) > 1 && !waits {
            let mut wanted = leader_worker_set::workers(set, &id.name, &value, &leader.name);
            wanted["metadata"]["ownerReferences"] = json!([owner_reference(&value)]);
            self.create(workers, wanted);
        }
    }

    fn reconcile_stateful_set(&mut self, id: &Id, set: &Value) {
        let mut pods = stateful_set::pods(set, &id.name);
        if stateful_set::one_by_one(set) {
            let runs = |name: &str| {
                let pod = Id::namespaced(Kind::Pod, id.namespace.clone(), name);
                self.store.get(&pod).is_some_and(|pod| phase(pod) == "Running")
            };
            let running = pods.iter().take_while(|(name, _)| runs(name)).count();
            // Those that exist already stay; of the others, the next one may come.
            let exists = |name: &str| self.store.get(&Id::namespaced(Kind::Pod, id.namespace.clone(), name)).is_some();
            let mut index = 0;
            pods.retain(|(name, _)| {
                index += 1;
                index <= running + 1 || exists(name)
            });
        }
        for (name, pod) in &mut pods {
            leader_worker_set::admit(pod, name, &id.namespace);
        }
        self.reconcile_named_pods(id, set, pods);
    }

    /// Makes the pods of these names that do not exist, and stops the others.
    fn reconcile_named_pods(&mut self, id: &Id, owner: &Value, wanted: Vec<(String, Value)>) {
        let names: BTreeSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        let surplus: Vec<Id> =
            self.active_pods(owner).into_iter().filter(|pod| !names.contains(pod.name.as_str())).collect();
        self.delete_surplus(id, &surplus, 0);
        for (name, pod) in wanted {
            let name = Id::namespaced(Kind::Pod, id.namespace.clone(), name);
            match self.store.get(&name) {
                None => self.add_pod(id, owner, &name, pod),
                // One of an owner that is gone, on its way out itself.
                Some(other) if is_leaving(other) => {
                    self.waiting_for_name.insert(name, id.clone());
                }
                Some(_) => {}
            }
        }
    }

    /// Kubeflow keeps the pods of a job that is done by default.
    fn clean_pods(&mut self, job: &Value) {
        let policy = job.pointer("/spec/runPolicy/cleanPodPolicy").and_then(Value::as_str).unwrap_or("None");
        let goes = |pod: &Value| match policy {
            "All" => true,
            "Running" => !is_over(pod),
            _ => false,
        };
        for pod in self.pods_of(job).filter(|pod| self.store.get(pod).is_some_and(goes)).cloned().collect::<Vec<Id>>() {
            self.stop_pod(&pod);
        }
    }

    fn finish_workload(&mut self, id: &Id, why: &str) {
        self.set_status(id, "conditions", &json!([{"type": "Complete", "status": "True"}]));
        self.note(Event::Finish, id, None, why);
    }

    fn set_status(&mut self, id: &Id, key: &str, status: &Value) {
        if self.store.get(id).and_then(|value| value.get("status")?.get(key)) == Some(status) {
            return;
        }
        self.store.change(id, |value| {
            if let Some(all) = object_at(value, &["status"]) {
                all.insert(key.to_owned(), status.clone());
            }
        });
    }

    /// What an object asks for. Nothing is simulated that has not been read this way before.
    pub(super) fn known_roles(&self, id: &Id, value: &Value) -> Vec<Role> {
        roles(id.kind, value, &self.grouper.declared)
            .unwrap_or_else(|malformed| panic!("{id} was checked when read: {malformed}"))
    }
}
