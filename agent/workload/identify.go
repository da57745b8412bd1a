package workload

import (
	"cmp"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Process is what is known of a process.
type Process struct {
	// Comm is the kernel's name of it: at most 15 bytes.
	Comm string
	// Cmdline are its arguments, with the command; empty if they could not be read.
	Cmdline []string
	// Environ is the environment that it was started with; only OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are read.
	Environ map[string]string
}

// maxValue is the longest label value in bytes that Pyroscope takes (max_label_value_length).
const maxValue = 2048

// unknown is what Pyroscope calls a service without a name.
const unknown = "unknown_service"

// attributes are the resource attributes of OpenTelemetry that become labels. Of several for one label, the first that a
// process has stands. Names are those of the semantic conventions 1.30, service and k8s.
var attributes = []struct{ attribute, label, kind string }{
	{"service.name", "service_name", ""},
	{"service.version", "version", ""},
	{"k8s.namespace.name", "namespace", ""},
	{"service.namespace", "namespace", ""},
	{"k8s.deployment.name", "deployment", "Deployment"},
	{"k8s.statefulset.name", "deployment", "StatefulSet"},
	{"k8s.daemonset.name", "deployment", "DaemonSet"},
	{"k8s.cronjob.name", "deployment", "CronJob"},
	{"k8s.job.name", "deployment", "Job"},
	{"k8s.pod.name", "pod", ""},
	{"k8s.container.name", "container", ""},
}

// Identify gives the labels of a process, service_name always among them. For each label, what the process says in its
// environment goes before extra, which is what the agent was told to add, and that before a service name guessed from the
// command line: an operator's name for a machine stands unless a program was given its own. Values are UTF-8 of at most
// 2,048 bytes; empty ones are left out.
func Identify(p Process, extra map[string]string) map[string]string {
	labels := map[string]string{"service_name": cmp.Or(name(p.Cmdline), baseName(p.Comm), unknown)}
	for _, source := range []map[string]string{extra, said(p.Environ)} {
		for k, v := range source {
			if v = clean(v); v != "" {
				labels[k] = v
			}
		}
	}
	labels["service_name"] = cmp.Or(clean(labels["service_name"]), unknown)
	return labels
}

// said gives the labels that a process's environment has.
func said(environ map[string]string) map[string]string {
	resource := parseAttributes(environ["OTEL_RESOURCE_ATTRIBUTES"])
	if n := environ["OTEL_SERVICE_NAME"]; n != "" {
		resource["service.name"] = n
	}
	labels := map[string]string{}
	for _, a := range attributes {
		v := resource[a.attribute]
		if v == "" || labels[a.label] != "" {
			continue
		}
		labels[a.label] = v
		if a.kind != "" {
			labels["workload_kind"] = a.kind
		}
	}
	if d := resource["deployment"]; d != "" {
		labels["deployment"] = d
		delete(labels, "workload_kind")
	}
	return labels
}

// parseAttributes reads OTEL_RESOURCE_ATTRIBUTES: key=value, separated by commas, percent-encoded. A list with any error
// in it counts for nothing, as the OpenTelemetry specification has it (resource SDK, "Specifying resource information via
// an environment variable").
func parseAttributes(list string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		key, keyErr := url.PathUnescape(strings.TrimSpace(key))
		value, valueErr := url.PathUnescape(strings.TrimSpace(value))
		if !ok || key == "" || keyErr != nil || valueErr != nil {
			return map[string]string{}
		}
		out[key] = value
	}
	return out
}

// clean makes a label value that the server takes.
func clean(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= maxValue {
		return s
	}
	end := maxValue
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
