// The controllers of the Kubeflow training operator without its webhooks, whose server would listen on every interface.
package main

import (
	"flag"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"k8s.io/apimachinery/pkg/runtime"
	clients "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	plugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

func main() {
	// Beside controller-runtime's own --kubeconfig.
	probes := flag.String("health-probe-bind-address", "", "where to answer probes")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))

	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clients.AddToScheme, kubeflow.AddToScheme, volcano.AddToScheme, plugins.AddToScheme,
	} {
		must(add(scheme))
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probes,
	})
	must(err)
	must(manager.AddReadyzCheck("readyz", healthz.Ping))
	for _, setUp := range controllers.SupportedSchemeReconciler {
		must(setUp(manager, common.GenNonGangSchedulerSetupFunc(), 1))
	}
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
