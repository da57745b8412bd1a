package agent

import "github.com/prometheus/client_golang/prometheus"

// Collector gives the agent's health as metrics.
func (a *Agent) Collector() prometheus.Collector { return collector{a} }

type collector struct{ agent *Agent }

var (
	kernelCounts   = prometheus.NewDesc("vramprof_agent_kernel_total", "What the programs in the kernel counted: calls, and what they could not do.", []string{"what"}, nil)
	unattached     = prometheus.NewDesc("vramprof_agent_unattached_total", "Driver functions and files without a probe, by name or reason.", []string{"what"}, nil)
	truncated      = prometheus.NewDesc("vramprof_agent_truncated_stacks_total", "Stacks that do not reach the outermost frame, by reason.", []string{"reason"}, nil)
	unreadable     = prometheus.NewDesc("vramprof_agent_unreadable_total", "Files and processes that could not be read, by reason.", []string{"reason"}, nil)
	eventsLost     = prometheus.NewDesc("vramprof_agent_events_lost_total", "Times that the kernel had no room for its events and the machine was scanned.", nil, nil)
	stacksLost     = prometheus.NewDesc("vramprof_agent_stacks_lost_total", "Samples whose stack is not known.", nil, nil)
	processesKnown = prometheus.NewDesc("vramprof_agent_processes", "Processes whose mappings are known.", nil, nil)
	attachedFiles  = prometheus.NewDesc("vramprof_agent_attached_libraries", "Driver libraries that carry probes.", nil, nil)
)

func (c collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c collector) Collect(out chan<- prometheus.Metric) {
	h, statistics, err := c.agent.Health()
	if err != nil {
		out <- prometheus.NewInvalidMetric(kernelCounts, err)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, m := range []struct {
		desc   *prometheus.Desc
		counts map[string]uint64
	}{{kernelCounts, statistics}, {unattached, h.Unattached}, {truncated, h.Truncated}, {unreadable, h.Unreadable}} {
		for label, n := range m.counts {
			counter(m.desc, n, label)
		}
	}
	counter(eventsLost, h.EventsLost)
	counter(stacksLost, h.StacksLost)
	c.agent.mu.Lock()
	processes, files := c.agent.table.Len(), len(c.agent.attached)
	c.agent.mu.Unlock()
	out <- prometheus.MustNewConstMetric(processesKnown, prometheus.GaugeValue, float64(processes))
	out <- prometheus.MustNewConstMetric(attachedFiles, prometheus.GaugeValue, float64(files))
}
