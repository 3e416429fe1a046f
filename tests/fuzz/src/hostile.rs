//! What an attacker would write: a table of places in objects times values that have no business there, and
//! shapes that recursion and loops do not expect.
//!
//! Deterministic, so that a failure has a name. Texts are made when they are asked for: together they are some hundred MB.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::{Target, annotations, config, large_snapshot, owners, pod_groups, reviews, selectors, simulation};

/// One of them.
pub struct Hostile {
    pub name: String,
    pub target: Target,
    input: Box<dyn Fn() -> Vec<u8>>,
}

impl Hostile {
    fn new(name: impl Into<String>, target: Target, input: impl Fn() -> String + 'static) -> Self {
        Self { name: name.into(), target, input: Box::new(move || input().into_bytes()) }
    }

    pub fn input(&self) -> Vec<u8> {
        (self.input)()
    }
}

/// All of them.
pub fn table() -> Vec<Hostile> {
    let mut all = Vec::new();
    for place in PLACES {
        for (name, value) in VALUES {
            let (kind, path) = place;
            let at = format!("{kind}{path} = {name}");
            all.push(Hostile::new(format!("replay: {at}"), large_snapshot, move || {
                snapshot(&damaged(place), &value())
            }));
            all.push(Hostile::new(format!("simulate: {at}"), simulation, move || manifest(&damaged(place), &value())));
            all.push(Hostile::new(format!("admission: {at}"), reviews, move || {
                review(&damaged(place), kind, &value())
            }));
        }
    }
    for key in
        ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "nvidia.com/mig-1g.5gb", "kai.scheduler/topology"]
    {
        for (name, value) in VALUES {
            let text = move || format!("{{{key:?}: {}}}", value());
            all.push(Hostile::new(format!("annotations: {key} = {name}"), annotations, text));
        }
    }
    all.extend(shapes());
    all
}

/// Kinds and paths in the objects of [`cluster`].
const PLACES: [(&str, &str); 24] = [
    ("Pod", "/metadata/name"),
    ("Pod", "/metadata/labels"),
    ("Pod", "/metadata/labels/kai.scheduler~1subgroup-name"),
    ("Pod", "/metadata/annotations"),
    ("Pod", "/metadata/annotations/gpu-fraction"),
    ("Pod", "/metadata/ownerReferences"),
    ("Pod", "/spec/containers"),
    ("Pod", "/spec/containers/0/resources/requests"),
    ("Pod", "/spec/nodeSelector"),
    ("Pod", "/spec/affinity"),
    ("Pod", "/spec/tolerations"),
    ("Pod", "/spec/priorityClassName"),
    ("Pod", "/status/phase"),
    ("Node", "/metadata/labels/zone"),
    ("Node", "/spec/taints"),
    ("Queue", "/spec/parentQueue"),
    ("Queue", "/spec/resources"),
    ("Queue", "/spec/priority"),
    ("PodGroup", "/spec/queue"),
    ("PodGroup", "/spec/minMember"),
    ("PodGroup", "/spec/subGroups"),
    ("PodGroup", "/spec/subGroups/0/name"),
    ("PodGroup", "/spec/topologyConstraint/requiredTopologyLevel"),
    ("Topology", "/spec/levels"),
];

type Text = fn() -> String;

/// JSON that does not belong anywhere.
const VALUES: [(&str, Text); 17] = [
    ("nothing", || "null".to_owned()),
    ("a list", || "[]".to_owned()),
    ("an object", || "{}".to_owned()),
    ("a number", || "3".to_owned()),
    ("a negative number", || "-1".to_owned()),
    ("half", || "0.5".to_owned()),
    ("the largest integer", || i64::MAX.to_string()),
    ("the smallest integer", || i64::MIN.to_string()),
    ("more than 64 bits", || "99999999999999999999999".to_owned()),
    ("a huge float", || "1e308".to_owned()),
    ("a terminal's escapes", || r#""\u001b]0;owned\u0007\u001b[2J\u202e\u0000""#.to_owned()),
    ("a long text", || format!("\"{}\"", "x".repeat(300_000))),
    ("a huge amount", || "\"99999999999999999999Ei\"".to_owned()),
    ("a hundred levels", || format!("{}{}", "[".repeat(100), "]".repeat(100))),
    ("many levels", || format!("{}{}", "[".repeat(200_000), "]".repeat(200_000))),
    ("many items", || format!("[{}1]", "{\"name\": \"x\"},".repeat(20_000))),
    ("many keys", || {
        let keys = (0..20_000).map(|index| format!("\"key-{index}\": \"1\""));
        format!("{{{}}}", keys.collect::<Vec<_>>().join(","))
    }),
];

/// Where a value is put in the text of an object.
const HOLE: &str = "\"@hole@\"";

/// A small cluster, in which something waits and something runs.
fn cluster() -> Vec<Value> {
    let unlimited = json!({"quota": -1, "limit": -1});
    let resources = json!({"gpu": unlimited, "cpu": unlimited, "memory": unlimited});
    let amounts = json!({"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    vec![
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "team", "annotations": {"pod-group-name": "group"},
                "labels": {"kai.scheduler/subgroup-name": "s0"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [
                {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"},
                    "limits": {"nvidia.com/gpu": "1"}}}]},
            "status": {"phase": "Pending"}}),
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "one", "labels": {"kubernetes.io/hostname": "one", "zone": "east", "nvidia.com/gpu.memory": "81559",
                "nvidia.com/gpu.count": "2"}},
            "spec": {}, "status": {"allocatable": amounts, "capacity": amounts, "conditions": ready}}),
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "all"}, "spec": {"resources": resources}}),
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"},
            "spec": {"parentQueue": "all", "resources": resources}}),
        json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "group", "namespace": "team"},
            "spec": {"queue": "team", "subGroups": [{"name": "s0", "minMember": 1}]}}),
        json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "dc"},
            "spec": {"levels": [{"nodeLabel": "zone"}]}}),
    ]
}

/// The cluster with a hole in the last object of a kind.
fn damaged((kind, path): (&str, &str)) -> Vec<Value> {
    let mut objects = cluster();
    let object = objects.iter_mut().rfind(|object| object["kind"] == kind).expect("the cluster has one of each kind");
    let mut here = object;
    for part in path.split('/').skip(1) {
        let key = part.replace("~1", "/");
        here = match key.parse::<usize>() {
            Ok(index) => &mut here[index],
            Err(_) => &mut here[key],
        };
    }
    *here = json!("@hole@");
    objects
}

fn list_of(kind: &str) -> &'static str {
    match kind {
        "Pod" => "pods",
        "Node" => "nodes",
        "Queue" => "queues",
        "PodGroup" => "podGroups",
        _ => "topologies",
    }
}

fn snapshot(objects: &[Value], value: &str) -> String {
    let mut lists = json!({});
    for object in objects {
        let list = list_of(object["kind"].as_str().unwrap_or_default());
        if !lists[list].is_array() {
            lists[list] = json!([]);
        }
        lists[list].as_array_mut().expect("made above").push(object.clone());
    }
    json!({"rawObjects": lists}).to_string().replace(HOLE, value)
}

/// JSON is YAML.
fn manifest(objects: &[Value], value: &str) -> String {
    let documents: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    documents.concat().replace(HOLE, value)
}

fn review(objects: &[Value], kind: &str, value: &str) -> String {
    let object = objects.iter().rfind(|object| object["kind"] == kind).expect("the cluster has one of each kind");
    let object = object.to_string().replace(HOLE, value);
    format!(r#"{{"request": {{"namespace": "team", "object": {object}, "oldObject": {object}}}}}"#)
}

fn queue(name: &str, parent: &str) -> Value {
    let unlimited = json!({"quota": -1, "limit": -1});
    let resources = json!({"gpu": unlimited, "cpu": unlimited, "memory": unlimited});
    json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
        "spec": {"parentQueue": parent, "resources": resources}})
}

/// The cluster and queues of which each is below the one before; the last closes the circle if there is to be one.
fn queues(length: usize, circle: bool) -> Vec<Value> {
    let first = if circle { format!("q{}", length - 1) } else { "all".to_owned() };
    let parent = |index: usize| index.checked_sub(1).map_or_else(|| first.clone(), |above| format!("q{above}"));
    let mut objects = cluster();
    objects.extend((0..length).map(|index| queue(&format!("q{index}"), &parent(index))));
    objects
}

/// Sub-groups with the number of the one above them.
fn sub_groups(length: usize, parent: fn(usize) -> Option<usize>) -> Value {
    let sub_group = |index: usize| match parent(index) {
        None => json!({"name": format!("s{index}"), "minMember": 0}),
        Some(parent) => json!({"name": format!("s{index}"), "parent": format!("s{parent}")}),
    };
    (0..length).map(sub_group).collect()
}

/// The cluster with these sub-groups in its pod group.
fn with_sub_groups(sub_groups: Value) -> Vec<Value> {
    let mut objects = cluster();
    let group = objects.iter_mut().find(|object| object["kind"] == "PodGroup").expect("the cluster has one");
    group["spec"]["subGroups"] = sub_groups;
    objects
}

type Parent = fn(usize) -> Option<usize>;

const CHAIN: Parent = |index| index.checked_sub(1);
const STAR: Parent = |index| (index > 0).then_some(0);
const WIDE: Parent = |_| None;
const PAIRS: Parent = |index| index.checked_sub(1).map(|index| index / 2);
const CIRCLE: Parent = |index| Some(if index == 0 { 4_999 } else { index - 1 });

/// A pod with owners of a kind that a config map declares.
fn declared(path: &str) -> String {
    let declaration = json!({"kind": "Thing", "group": "x.io", "minimum": path, "replicas": path}).to_string();
    let reference = json!([{"apiVersion": "x.io/v1", "kind": "Thing", "name": "t", "uid": "u", "controller": true}]);
    let items: Vec<Value> = (0..2_000).map(|index| json!({"index": index, "list": [index, index]})).collect();
    json!({
        "declarations": {"data": {"thing": declaration}},
        "pod": {"metadata": {"name": "p", "namespace": "team", "uid": "p", "ownerReferences": reference},
            "spec": {"schedulerName": "kai-scheduler"}},
        "objects": [{"apiVersion": "x.io/v1", "kind": "Thing", "spec": {"items": items},
            "metadata": {"name": "t", "namespace": "team", "uid": "u"}}],
    })
    .to_string()
}

/// A pod with a chain of owners; the last one owns the first if it is to be a circle.
fn owner_chain(length: usize, circle: bool) -> String {
    let reference = |index: usize| json!([{"apiVersion": "x.io/v1", "kind": "X", "name": format!("o{index}"), "uid": format!("u{index}")}]);
    let object = |index: usize| {
        let mut metadata = json!({"name": format!("o{index}"), "namespace": "team", "uid": format!("u{index}")});
        if index + 1 < length || circle {
            metadata["ownerReferences"] = reference((index + 1) % length);
        }
        json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": metadata})
    };
    let objects: Vec<Value> = (0..length).map(object).collect();
    let pod = json!({"metadata": {"name": "p", "namespace": "team", "uid": "p", "ownerReferences": reference(0)},
        "spec": {"schedulerName": "kai-scheduler"}});
    json!({"pod": pod, "objects": objects}).to_string()
}

/// A cluster with devices and a claim whose selector is this expression.
fn claim(expression: &str) -> String {
    let device = |index: usize| json!({"name": format!("gpu-{index}"), "attributes": {"model": {"string": "A100"}}});
    let slice = json!({"metadata": {"name": "slice"}, "spec": {"driver": "gpu.example.com", "nodeName": "one",
        "pool": {"name": "one", "resourceSliceCount": 1}, "devices": (0..4).map(device).collect::<Vec<_>>()}});
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    let exactly = json!({"deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount",
        "selectors": [{"cel": {"expression": expression}}]});
    let claim = json!({"metadata": {"name": "c", "namespace": "team"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}});
    let mut objects = cluster();
    objects[0]["spec"]["resourceClaims"] = json!([{"name": "gpus", "resourceClaimName": "c"}]);
    let mut file: Value = serde_json::from_str(&snapshot(&objects, "")).expect("written above");
    file["rawObjects"]["resourceSlices"] = json!([slice]);
    file["rawObjects"]["deviceClasses"] = json!([class]);
    file["rawObjects"]["resourceClaims"] = json!([claim]);
    file.to_string()
}

fn selector(terms: usize, values: usize) -> String {
    let values: Vec<String> = (0..values).map(|index| format!("v{index}")).collect();
    let expression = json!({"key": "zone", "operator": "NotIn", "values": values});
    let term = json!({"matchExpressions": [expression]});
    let terms = vec![term; terms];
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        .to_string()
}

fn pod_affinity(terms: usize) -> String {
    let term = |index: usize| {
        json!({"topologyKey": format!("key-{index}"),
        "labelSelector": {"matchLabels": {format!("app-{index}"): "b"}}})
    };
    let terms: Vec<Value> = (0..terms).map(term).collect();
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}).to_string()
}

/// Blanks that shrink to a thousandth.
fn packed_blanks() -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let blanks = vec![b' '; 1 << 20];
    for _ in 0..66 {
        packed.write_all(&blanks).expect("memory can be written to");
    }
    packed.finish().expect("memory can be written to")
}

/// Lists of lists by aliases: each line is ten times the one before.
fn aliases() -> String {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..9 {
        let ten = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{ten}]").expect("text can be written to");
    }
    text
}

/// Shapes of trees, chains, expressions and files.
fn shapes() -> Vec<Hostile> {
    let mut all = Vec::new();
    for (name, length, parent) in [
        ("a chain of 33", 33, CHAIN),
        ("a chain of 5,000", 5_000, CHAIN),
        ("a chain of 16,384", 16_384, CHAIN),
        ("a chain of 100,000", 100_000, CHAIN),
        ("a star of 16,384", 16_384, STAR),
        ("16,384 beside each other", 16_384, WIDE),
        ("16,385 beside each other", 16_385, WIDE),
        ("a tree of pairs", 8_191, PAIRS),
        ("a circle of 5,000", 5_000, CIRCLE),
    ] {
        let tree = move || sub_groups(length, parent);
        let spec = move || json!({"subGroups": tree()}).to_string();
        all.push(Hostile::new(format!("pod group: {name}"), pod_groups, spec));
        all.push(Hostile::new(format!("replay: {name}"), large_snapshot, move || {
            snapshot(&with_sub_groups(tree()), "")
        }));
        all.push(Hostile::new(format!("simulate: {name}"), simulation, move || manifest(&with_sub_groups(tree()), "")));
    }
    for (length, circle) in [(65, false), (5_000, false), (20_000, false), (2, true), (5_000, true)] {
        let name = format!("{length} queues{}", if circle { " in a circle" } else { "" });
        all.push(Hostile::new(format!("replay: {name}"), large_snapshot, move || {
            snapshot(&queues(length, circle), "")
        }));
        all.push(Hostile::new(format!("simulate: {name}"), simulation, move || manifest(&queues(length, circle), "")));
    }
    for (length, circle) in [(31, false), (33, false), (5_000, false), (1, true), (40, true)] {
        let name = format!("owners: {length}{}", if circle { " in a circle" } else { "" });
        all.push(Hostile::new(name, owners, move || owner_chain(length, circle)));
    }
    for path in [
        "[.spec.items[] | .list] | add".to_owned(),
        format!("[1]{}", " | . + .".repeat(60)),
        format!("[.spec.items[].index]{}", " | [.[], .[]]".repeat(40)),
        format!(".spec.items[]{}", " | .., .".repeat(40)),
        format!("{}1", "[".repeat(60)),
        format!("{}1", "-".repeat(5_000)),
        format!("\"{}\"{}", "x".repeat(1_000), " | . * 1000".repeat(3)),
        ".".repeat(100_000),
    ] {
        let start: String = path.chars().take(30).collect();
        all.push(Hostile::new(format!("jq: {start}"), owners, move || declared(&path)));
    }
    for (terms, values) in [(1, 50_000), (5_000, 1), (200, 200)] {
        let name = format!("node affinity: {terms} terms of {values} values");
        all.push(Hostile::new(name, selectors, move || selector(terms, values)));
    }
    all.push(Hostile::new("pod affinity: 1,000 terms", selectors, || pod_affinity(1_000)));
    for expression in [
        "lists.range(4000).all(x, lists.range(4000).all(y, lists.range(4000).all(z, x + y + z >= 0)))".to_owned(),
        format!("['a'].map(x, x + x){}.size() > 0", ".map(x, x + x)".repeat(80)),
        "lists.range(4000).all(x, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches(string(x) + '(a{100}){100}b'))"
            .to_owned(),
        format!("true{}", " && true".repeat(1_200)),
        format!("{}1 > 0", "1 + ".repeat(2_400)),
        format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("device.driver == '{}'", "\u{1b}[2J".repeat(500)),
        "x".repeat(100_000),
    ] {
        let start: String = expression.escape_debug().take(40).collect();
        all.push(Hostile::new(format!("CEL: {start}"), large_snapshot, move || claim(&expression)));
    }
    for (name, text) in [
        ("many levels of flow", "[".repeat(200_000)),
        ("many levels of blocks", "- ".repeat(200_000)),
        ("many levels of keys", "{a: ".repeat(100_000)),
        ("aliases that multiply", aliases()),
        ("many documents", "---\na: 1\n".repeat(50_000)),
        ("many empty documents", "---\n".repeat(200_000)),
        ("a tag", "!<tag:yaml.org,2002:binary> x".to_owned()),
        ("a long line", "x".repeat(2_000_000)),
        ("no text", "\u{0}\u{1}\u{2}".to_owned()),
    ] {
        let copy = text.clone();
        all.push(Hostile::new(format!("simulate: {name}"), simulation, move || text.clone()));
        if name != "aliases that multiply" {
            all.push(Hostile::new(format!("config: {name}"), config, move || copy.clone()));
        }
    }
    for (name, text) in [
        ("many levels", format!("{{\"rawObjects\": {}", "[".repeat(200_000))),
        ("many levels in what is passed over", format!("{{\"x\": {}", "[".repeat(200_000))),
        ("many lists", format!("{{\"rawObjects\": {{{}}}}}", vec!["\"pods\": []"; 50_000].join(","))),
        ("empty objects", format!("{{\"rawObjects\": {{\"pods\": [{}{{}}]}}}}", "{},".repeat(50_000))),
        ("a text for a list", format!("{{\"rawObjects\": \"{}\"}}", "\u{7f}x".repeat(200_000))),
        ("a text for a time", format!("{{\"rawObjects\": {{}}, \"cycle\": {{\"now\": \"{}\"}}}}", "x".repeat(200_000))),
    ] {
        all.push(Hostile::new(format!("replay: {name}"), large_snapshot, move || text.clone()));
    }
    all.push(Hostile {
        name: "replay: a packed file that unpacks to a thousand times its size".to_owned(),
        target: large_snapshot,
        input: Box::new(packed_blanks),
    });
    all
}
