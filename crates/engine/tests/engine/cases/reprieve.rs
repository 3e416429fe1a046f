//! Eviction counts as cost: of the victims that are tried together, those stay who can.

use expect_test::expect;

use crate::support::check;

/// All four pods are victims together, since two of them are on the node that is needed. KAI moves `wide-1` into the
/// place of `wide-2` and evicts that one, too.
#[test]
fn surplus_on_other_nodes_stays() {
    check(
        "policy actions=reclaim
         node a gpu=2
         node b gpu=2
         queue A quota=2
         queue B
         job wide queue=B gpu=1 min=1 running=a,b,a,b
         job next queue=A gpu=2",
        expect![["
            evict wide-3 for next (reclaim)
            evict wide-1 for next (reclaim)
            pipeline next-0 b"]],
    );
}

/// Its place would be below the limit of its queue no more.
#[test]
fn a_limit_is_no_room() {
    check(
        "policy actions=preempt
         node a gpu=4
         queue team quota=2 limit=2
         job low  queue=team gpu=1 min=1 running=a,a prio=50
         job high queue=team gpu=1 prio=75",
        expect![["
            evict low-1 for high (preempt)
            pipeline high-0 a"]],
    );
}
