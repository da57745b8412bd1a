package attach_test

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vramprof/vramprof/agent/attach"
)

// BenchmarkCall gives the ns per call, as the caller measures them, with no probe, and with empty programs on entry, or on
// entry and return, at the first and at the chosen instruction.
func BenchmarkCall(b *testing.B) {
	path := library(b)
	f := open(b, path)
	c := startCaller(b, path)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Kprobe, AttachType: attach.UprobeMulti.AttachType(),
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "Apache-2.0",
	})
	if err != nil {
		b.Fatal(err)
	}
	defer program.Close()
	for _, symbol := range []string{"stub", "endbr_push", "push_first", "nop5_only", "endbr_jump"} {
		site := plan(b, f, symbol).Sites[0]
		measure := func(name string, probes ...attach.Probe) {
			b.Run(symbol+"/"+name, func(b *testing.B) {
				if len(probes) > 0 {
					attachAll(b, attach.UprobeMulti, f, probes)
				}
				_, ns := c.call(symbol, b.N)
				b.ReportMetric(ns, "ns/call")
				b.ReportMetric(0, "ns/op")
			})
		}
		measure("bare")
		for _, offset := range []uint64{0, site.ProbeOffset} {
			at := site
			at.ProbeOffset = offset
			measure(fmt.Sprintf("entry+%d", offset), attach.Probe{Site: at, Entry: program})
			measure(fmt.Sprintf("pair+%d", offset), attach.Probe{Site: at, Entry: program, Return: program})
			if site.ProbeOffset == 0 {
				break
			}
			if offset > 0 {
				start := at
				start.ProbeOffset = 0
				measure("entry+"+fmt.Sprint(offset)+",return+0", attach.Probe{Site: at, Entry: program}, attach.Probe{Site: start, Return: program})
			}
		}
	}
}
