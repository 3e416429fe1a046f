// Command upstream runs one scheduling cycle of NVIDIA KAI over a snapshot file and prints what it cost and decided, as the
// same JSON line that `kai replay -o json` prints.
//
// The objects of the file are served by client-go's fake clients. Their writes are answered and dropped: the
// clients would pass each one on to watchers whose buffers hold a hundred, and panic at the next.
package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	kaifake "github.com/NVIDIA/KAI-scheduler/pkg/apis/client/clientset/versioned/fake"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/actions"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/eviction_info"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/pod_info"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/podgroup_info"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/cache"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/conf_util"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/framework"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/log"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/metrics"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/plugins"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/plugins/snapshot"
)

// result is the JSON line; times are milliseconds of CPU time of the whole process.
type result struct {
	OpenMs    float64            `json:"open_ms"`
	ActionsMs map[string]float64 `json:"actions_ms"`
	CycleMs   float64            `json:"cycle_ms"`
	WallMs    float64            `json:"wall_ms"`
	Bound     int                `json:"bound"`
	Pipelined int                `json:"pipelined"`
	Evicted   int                `json:"evicted"`
	RssMb     float64            `json:"rss_mb"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: upstream SNAPSHOT.zip")
		os.Exit(2)
	}
	outcome, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "upstream: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(outcome); err != nil {
		fmt.Fprintf(os.Stderr, "upstream: %v\n", err)
		os.Exit(1)
	}
}

func run(path string) (*result, error) {
	// Errors only: arguments of log lines are not part of the comparison.
	if err := log.InitLoggers(0); err != nil {
		return nil, err
	}
	file, err := load(path)
	if err != nil {
		return nil, err
	}
	actions.InitDefaultActions()
	plugins.InitDefaultPlugins()

	counter, err := clusterOf(file)
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	defer close(stop)
	counter.Run(stop)
	counter.WaitForCacheSync(stop)
	steps, err := conf_util.GetActionsFromConfig(file.Config)
	if err != nil {
		return nil, err
	}

	// What reading the file left behind is not part of the cycle.
	runtime.GC()
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)

	outcome := &result{ActionsMs: map[string]float64{}}
	began, watch := time.Now(), cpuMs()
	session, err := framework.OpenSession(counter, file.Config, file.SchedulerParams, "bench-upstream", http.NewServeMux())
	if err != nil {
		return nil, err
	}
	outcome.OpenMs = lap(&watch)
	outcome.CycleMs = outcome.OpenMs
	for _, action := range steps {
		name := string(action.Name())
		metrics.SetCurrentAction(name)
		action.Execute(session)
		outcome.ActionsMs[name] = lap(&watch)
		outcome.CycleMs += outcome.ActionsMs[name]
	}
	outcome.WallMs = float64(time.Since(began).Microseconds()) / 1000
	if outcome.RssMb, err = peakMb(); err != nil {
		return nil, err
	}
	framework.CloseSession(session)
	counter.WaitForWorkers(stop)
	outcome.Bound, outcome.Pipelined, outcome.Evicted = len(counter.bound), len(counter.pipelined), len(counter.evicted)
	return outcome, nil
}

func load(path string) (*snapshot.Snapshot, error) {
	archive, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	entry, err := archive.Open(snapshot.SnapshotFileName)
	if err != nil {
		return nil, err
	}
	defer entry.Close()
	file := &snapshot.Snapshot{}
	if err := json.NewDecoder(entry).Decode(file); err != nil {
		return nil, err
	}
	if file.Config == nil || file.SchedulerParams == nil || file.RawObjects == nil {
		return nil, errors.New("config, schedulerParams or rawObjects is missing")
	}
	return file, nil
}

// clusterOf is NVIDIA KAI's own cache over the objects of the file.
func clusterOf(file *snapshot.Snapshot) (*counter, error) {
	kube, kai := fake.NewSimpleClientset(), kaifake.NewSimpleClientset()
	// Each list goes to the clients that know its kind, before any client watches.
	lists := reflect.ValueOf(file.RawObjects).Elem()
	for index := range lists.NumField() {
		tracker := kube.Tracker()
		switch lists.Type().Field(index).Name {
		case "Queues", "PodGroups", "BindRequests", "Topologies":
			tracker = kai.Tracker()
		}
		list := lists.Field(index)
		for item := range list.Len() {
			object, ok := list.Index(item).Interface().(kruntime.Object)
			if !ok {
				return nil, fmt.Errorf("%s has an item that is no Kubernetes object", lists.Type().Field(index).Name)
			}
			if err := tracker.Add(object); err != nil {
				return nil, err
			}
		}
	}
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		kube.PrependReactor(verb, "*", swallow)
		kai.PrependReactor(verb, "*", swallow)
	}
	params := file.SchedulerParams
	inner := cache.New(&cache.SchedulerCacheParams{
		KubeClient:                  kube,
		KAISchedulerClient:          kai,
		DiscoveryClient:             kube.Discovery(),
		SchedulerName:               params.SchedulerName,
		NodePoolParams:              params.PartitionParams,
		RestrictNodeScheduling:      params.RestrictSchedulingNodes,
		DetailedFitErrors:           params.DetailedFitErrors,
		ScheduleCSIStorage:          params.ScheduleCSIStorage,
		FullHierarchyFairness:       params.FullHierarchyFairness,
		AllowConsolidatingReclaim:   params.AllowConsolidatingReclaim,
		NumOfStatusRecordingWorkers: params.NumOfStatusRecordingWorkers,
	})
	return &counter{Cache: inner, bound: set{}, pipelined: set{}, evicted: set{}}, nil
}

// swallow answers that a write succeeded and drops it.
func swallow(action ktesting.Action) (bool, kruntime.Object, error) {
	switch write := action.(type) {
	case ktesting.CreateAction:
		return true, write.GetObject(), nil
	case ktesting.UpdateAction:
		return true, write.GetObject(), nil
	}
	if action.GetResource().Resource == "events" {
		// An event that happened before is patched, and its recorder looks at the answer.
		return true, &v1.Event{}, nil
	}
	return true, nil, nil
}

type set map[string]struct{}

// counter is a cache that records the pods for which there is a decision.
type counter struct {
	cache.Cache
	lock                      sync.Mutex
	bound, pipelined, evicted set
}

func (c *counter) note(pods set, pod *v1.Pod) {
	c.lock.Lock()
	defer c.lock.Unlock()
	pods[pod.Namespace+"/"+pod.Name] = struct{}{}
}

func (c *counter) Bind(task *pod_info.PodInfo, node string, annotations map[string]string) error {
	c.note(c.bound, task.Pod)
	return c.Cache.Bind(task, node, annotations)
}

func (c *counter) Evict(
	pod *v1.Pod, job *podgroup_info.PodGroupInfo, metadata eviction_info.EvictionMetadata, message string,
) error {
	c.note(c.evicted, pod)
	return c.Cache.Evict(pod, job, metadata, message)
}

func (c *counter) TaskPipelined(task *pod_info.PodInfo, message string) {
	c.note(c.pipelined, task.Pod)
	c.Cache.TaskPipelined(task, message)
}

// cpuMs is the CPU time of all threads so far.
func cpuMs() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // only a wrong argument can fail
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e6
}

// lap is the CPU time since the last one.
func lap(watch *float64) float64 {
	now := cpuMs()
	passed := now - *watch
	*watch = now
	return passed
}

// peakMb is the most memory that was in use at once since the peak was last forgotten.
func peakMb() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(status), "\n") {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}
