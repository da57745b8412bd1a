package workload_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vramprof/vramprof/agent/workload"
)

func TestServiceName(t *testing.T) {
	for _, row := range []struct {
		name    string
		comm    string
		cmdline string // separated by |
		want    string
	}{
		{"script", "python3", "python3|train.py|--epochs|3", "train"},
		{"script with path", "python3.12", "/usr/bin/python3.12|/srv/app/serve.v2.py", "serve.v2"},
		{"options before script", "python", "python|-u|-W|ignore|-Xdev|-X|importtime|-OO|train.py", "train"},
		{"module", "python", "python|-m|pkg.mod|--port|80", "pkg.mod"},
		{"module in a cluster", "python", "python|-Im|pkg.mod", "pkg.mod"},
		{"module in one word", "python", "python|-umpkg.mod", "pkg.mod"},
		{"module's own main", "python", "python|-m|vllm.__main__", "vllm"},
		{"entry point", "vllm", "/opt/venv/bin/python|/opt/venv/bin/vllm|serve|model", "vllm"},
		{"package folder", "python", "python|/srv/trainer/__main__.py", "trainer"},
		{"inline code", "python", "python3|-c|import secret; secret.use('hunter2')", "python3"},
		{"inline code in a cluster", "python", "python3|-uc|print('train.py')", "python3"},
		{"standard input", "python", "python3|-|train.py", "python3"},
		{"no arguments", "python", "python3.13t", "python3.13t"},
		{"end of options", "python", "python|--|-odd.py", "-odd"},
		{"long option with an argument", "python", "python|--check-hash-based-pycs|never|train.py", "train"},
		{"not an interpreter", "pythonista", "pythonista|train.py", "pythonista"},
		{"binary", "inference", "/opt/inference|--port|80", "inference"},
		{"node", "node", "node|--require|x|server.mjs", "server"},
		{"jar", "java", "java|-Xmx1g|-cp|lib|-jar|/opt/engine.jar", "engine"},
		{"shell", "bash", "bash|-x|/srv/run.sh|train.py", "run"},
		{"login shell", "bash", "-bash", "bash"},
		{"title", "VLLM::EngineCor", "VLLM::EngineCore", "VLLM::EngineCore"},
		{"title with words", "postgres", "postgres: writer /var/x process 4711", "postgres"},
		{"title with path", "nginx", "/usr/sbin/nginx -g daemon off;", "nginx"},
		{"no command line", "kworker", "", "kworker"},
		{"nothing", "", "", "unknown_service"},
		{"empty command", "a.out", "|x", "a.out"},
		{"only slashes", "", "/", "unknown_service"},
		{"script without name", "python", "python|.py", ".py"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var args []string
			if row.cmdline != "" {
				args = strings.Split(row.cmdline, "|")
			}
			got := workload.Identify(workload.Process{Comm: row.comm, Cmdline: args}, nil)
			if want := map[string]string{"service_name": row.want}; !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

func TestLabels(t *testing.T) {
	const a = "OTEL_RESOURCE_ATTRIBUTES"
	for _, row := range []struct {
		name    string
		environ map[string]string
		extra   map[string]string
		want    map[string]string
	}{
		{"OTEL_SERVICE_NAME goes first", map[string]string{"OTEL_SERVICE_NAME": "chat", a: "service.name=other"}, nil, map[string]string{"service_name": "chat"}},
		{"resource", map[string]string{a: "service.name=chat,service.version=v2,k8s.namespace.name=prod,k8s.deployment.name=chat-gpu"}, nil,
			map[string]string{"service_name": "chat", "version": "v2", "namespace": "prod", "deployment": "chat-gpu", "workload_kind": "Deployment"}},
		{"pod", map[string]string{a: "k8s.pod.name=chat-0,k8s.container.name=engine,k8s.statefulset.name=chat"}, nil,
			map[string]string{"service_name": "train", "pod": "chat-0", "container": "engine", "deployment": "chat", "workload_kind": "StatefulSet"}},
		{"job of a cron job", map[string]string{a: "k8s.job.name=nightly-1,k8s.cronjob.name=nightly"}, nil,
			map[string]string{"service_name": "train", "deployment": "nightly", "workload_kind": "CronJob"}},
		{"plain deployment", map[string]string{a: "deployment=blue,k8s.job.name=j"}, nil, map[string]string{"service_name": "train", "deployment": "blue"}},
		{"namespace of Kubernetes before the service's", map[string]string{a: "service.namespace=shop,k8s.namespace.name=prod"}, nil,
			map[string]string{"service_name": "train", "namespace": "prod"}},
		{"percent and spaces", map[string]string{a: " service.name = my%20chat%2C%20%C3%A4+b , service.version=1%3D2,"}, nil,
			map[string]string{"service_name": "my chat, ä+b", "version": "1=2"}},
		{"bad escape spoils the list", map[string]string{a: "service.name=chat,service.version=%zz"}, nil, map[string]string{"service_name": "train"}},
		{"no equals sign spoils the list", map[string]string{a: "service.name=chat,oops"}, nil, map[string]string{"service_name": "train"}},
		{"value with an equals sign", map[string]string{a: "service.version=a=b"}, nil, map[string]string{"service_name": "train", "version": "a=b"}},
		{"extra before a guess", nil, map[string]string{"service_name": "box", "team": "ml"}, map[string]string{"service_name": "box", "team": "ml"}},
		{"environment before extra", map[string]string{"OTEL_SERVICE_NAME": "chat"}, map[string]string{"service_name": "box", "version": "v1"},
			map[string]string{"service_name": "chat", "version": "v1"}},
		{"empty says nothing", map[string]string{"OTEL_SERVICE_NAME": " ", a: "service.version="}, map[string]string{"version": "v1", "team": ""},
			map[string]string{"service_name": "train", "version": "v1"}},
		{"not UTF-8", map[string]string{"OTEL_SERVICE_NAME": "a\xffb", a: "service.version=%ff"}, nil, map[string]string{"service_name": "a\uFFFDb", "version": "\uFFFD"}},
		{"too long", map[string]string{"OTEL_SERVICE_NAME": "x" + strings.Repeat("ä", 2000)}, nil, map[string]string{"service_name": "x" + strings.Repeat("ä", 1023)}},
		{"secrets are not read", map[string]string{"AWS_SECRET_ACCESS_KEY": "s", "HF_TOKEN": "t", a: "password=hunter2,process.pid=4711"}, nil, map[string]string{"service_name": "train"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := workload.Identify(workload.Process{Comm: "python3", Cmdline: []string{"python3", "train.py"}, Environ: row.environ}, row.extra)
			if !maps.Equal(got, row.want) {
				t.Errorf("%v\nwant %v", got, row.want)
			}
		})
	}
}

// What the interpreter takes for its script or module is what the process is named after.
func TestAgainstPython(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/job.py", []byte("print(__file__)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"job.py"}, {"-u", "job.py", "-m", "x"}, {"-W", "ignore", "job.py"}, {"-Wignore", "-X", "dev", "job.py"}, {"-m", "job"},
		{"-bbm", "job"}, {"-mjob"}, {"--check-hash-based-pycs", "never", "job.py"}, {"-OOu", "job.py"}, {"--", "job.py"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			c := exec.Command("python3", args...)
			c.Dir = dir
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "job.py") {
				t.Fatalf("the interpreter does not run the script: %v\n%s", err, out)
			}
			got := workload.Identify(workload.Process{Cmdline: append([]string{"python3"}, args...)}, nil)
			if got["service_name"] != "job" {
				t.Errorf("%v", got)
			}
		})
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add("python3", "python3\x00-m\x00a", "service.name=a,service.version=%20")
	f.Add("", "-c\x00", "=,%")
	f.Fuzz(func(t *testing.T, comm, cmdline, attributes string) {
		labels := workload.Identify(workload.Process{
			Comm: comm, Cmdline: strings.Split(cmdline, "\x00"), Environ: map[string]string{"OTEL_RESOURCE_ATTRIBUTES": attributes},
		}, nil)
		if labels["service_name"] == "" {
			t.Error("no service name")
		}
		for k, v := range labels {
			if v == "" || len(v) > 2048 || !utf8.ValidString(v) {
				t.Errorf("%s=%q", k, v)
			}
		}
	})
}
