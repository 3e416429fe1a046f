// KAI's webhook for pods and its pod group controller, whose own programs would listen on every interface.
package main

import (
	"flag"

	"github.com/NVIDIA/KAI-scheduler/pkg/admission/plugins"
	"github.com/NVIDIA/KAI-scheduler/pkg/admission/webhook/v1alpha2/gpusharing"
	"github.com/NVIDIA/KAI-scheduler/pkg/admission/webhook/v1alpha2/podhooks"
	"github.com/NVIDIA/KAI-scheduler/pkg/admission/webhook/v1alpha2/runtimeenforcement"
	"github.com/NVIDIA/KAI-scheduler/pkg/apis/scheduling/v2alpha2"
	"github.com/NVIDIA/KAI-scheduler/pkg/podgroupcontroller/controllers"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clients "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func main() {
	// Beside controller-runtime's own --kubeconfig.
	probes := flag.String("health-probe-bind-address", "", "where to answer probes")
	port := flag.Int("webhook-port", 0, "where to answer webhooks, on 127.0.0.1")
	certificates := flag.String("webhook-cert-dir", "", "folder with tls.crt and tls.key")
	scheduler := flag.String("scheduler-name", "kai-scheduler", "whose pods are meant")
	runtimeClass := flag.String("gpu-pod-runtime-class-name", "nvidia", "of pods that ask for GPUs")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clients.AddToScheme, v2alpha2.AddToScheme} {
		must(add(scheme))
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probes,
		WebhookServer:          webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certificates}),
	})
	must(err)
	must(manager.AddReadyzCheck("readyz", healthz.Ping))

	hooks := plugins.New()
	hooks.RegisterPlugin(gpusharing.New(manager.GetClient(), true))
	hooks.RegisterPlugin(runtimeenforcement.New(*runtimeClass))
	must(ctrl.NewWebhookManagedBy(manager).For(&core.Pod{}).
		WithDefaulter(podhooks.NewPodMutator(manager.GetClient(), hooks, *scheduler)).
		WithValidator(podhooks.NewPodValidator(manager.GetClient(), hooks, *scheduler)).
		Complete())
	groups := controllers.PodGroupReconciler{Client: manager.GetClient(), Scheme: scheme}
	must(groups.SetupWithManager(manager, controllers.Configs{MaxConcurrentReconciles: 1}, false))
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
