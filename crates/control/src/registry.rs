//! All components of the program, and how their controllers are started. Subcommands, permissions, the processes of the
//! live crate and fault injection go by this list: a component that is not in it does not exist.

use std::collections::BTreeSet;
use std::fmt;

use kai_api::keys::name;
use kai_engine::units::Span;

use crate::admission::{self, AdmissionCache};
use crate::binder::{self, BinderController};
use crate::component::Component;
use crate::controller::Controller;
use crate::grouper::{self, GrouperController};
use crate::key::Key;
use crate::kinds::Kind;
use crate::node_scale::{self, NodeScaleController};
use crate::scheduler::{self, SchedulerController};
use crate::status::{self, PodGroupAggregator, QueueAggregator, StatusController};

/// What components are started with; each takes its part.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the components.
    pub namespace: String,
    pub scheduler: scheduler::Settings,
    /// The longest time between two cycles.
    pub schedule_period: Span,
    pub binder: binder::Settings,
    pub grouper: kai_workloads::Settings,
    pub node_scale: node_scale::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: name::NAMESPACE.to_owned(),
            scheduler: scheduler::Settings::default(),
            schedule_period: Span::seconds(1),
            binder: binder::Settings::default(),
            grouper: kai_workloads::Settings::default(),
            node_scale: node_scale::Settings::default(),
        }
    }
}

/// A component and its controller.
pub struct Registered {
    pub component: &'static Component,
    /// A controller that knows nothing yet.
    pub start: fn(&Settings) -> Box<dyn Controller + Send>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.component.name)
    }
}

/// In the order in which their permissions are printed.
pub static COMPONENTS: [&Registered; 7] =
    [&SCHEDULER, &BINDER, &POD_GROUPER, &POD_GROUP_CONTROLLER, &QUEUE_CONTROLLER, &ADMISSION, &NODE_SCALE_ADJUSTER];

/// All components, with the kinds that they watch or read.
pub fn components() -> Vec<(&'static Component, BTreeSet<Kind>)> {
    let reads = |Registered { component, start }: &Registered| {
        let watched = start(&Settings::default()).watches();
        (*component, watched.iter().map(|spec| spec.kind).chain(component.reads.iter().copied()).collect())
    };
    COMPONENTS.into_iter().map(reads).collect()
}

pub static SCHEDULER: Registered = Registered {
    component: &scheduler::COMPONENT,
    start: |settings| Box::new(SchedulerController::new(settings.scheduler.clone(), settings.schedule_period)),
};

pub static BINDER: Registered = Registered {
    component: &binder::COMPONENT,
    start: |settings| Box::new(BinderController::new(settings.binder.clone())),
};

pub static POD_GROUPER: Registered = Registered {
    component: &grouper::COMPONENT,
    start: |settings| {
        let declarations = Key::new(&settings.namespace, name::WORKLOAD_KINDS);
        Box::new(GrouperController::new(settings.grouper.clone(), declarations))
    },
};

pub static POD_GROUP_CONTROLLER: Registered = Registered {
    component: &status::POD_GROUPS,
    start: |settings| Box::new(StatusController::new(PodGroupAggregator::new(&settings.scheduler.scheduler_name))),
};

pub static QUEUE_CONTROLLER: Registered =
    Registered { component: &status::QUEUES, start: |_| Box::new(StatusController::new(QueueAggregator::default())) };

pub static ADMISSION: Registered = Registered {
    component: &admission::COMPONENT,
    start: |settings| Box::new(AdmissionCache::new(&settings.scheduler.scheduler_name)),
};

pub static NODE_SCALE_ADJUSTER: Registered = Registered {
    component: &node_scale::COMPONENT,
    start: |settings| {
        let scheduler_name = settings.scheduler.scheduler_name.clone();
        Box::new(NodeScaleController::new(settings.node_scale.clone(), scheduler_name))
    },
};
