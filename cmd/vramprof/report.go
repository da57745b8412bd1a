package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/pprof/profile"
)

// report is what `vramprof run` says at the end: who allocated most.
type report struct {
	Command        []string `json:"command"`
	ExitStatus     int      `json:"exit_status"`
	Seconds        float64  `json:"seconds"`
	AllocatedBytes int64    `json:"allocated_bytes"`
	Allocations    int64    `json:"allocations"`
	PeakBytes      int64    `json:"peak_bytes"`
	FailedBytes    int64    `json:"failed_bytes"`
	Failed         int64    `json:"failed"`
	// Top is sorted by bytes allocated. Every allocation counts in one entry.
	Top []entry `json:"top"`
}

// entry is one line of the program that allocated: see who.
type entry struct {
	Function       string  `json:"function"`
	File           string  `json:"file,omitempty"`
	Line           int64   `json:"line,omitempty"`
	AllocatedBytes int64   `json:"allocated_bytes"`
	Share          float64 `json:"share"`
	Allocations    int64   `json:"allocations"`
	PeakBytes      int64   `json:"peak_bytes"`
	FailedBytes    int64   `json:"failed_bytes"`
}

func newReport(p *profile.Profile, command []string, status int, took time.Duration) report {
	r := report{Command: command, ExitStatus: status, Seconds: took.Seconds()}
	index := map[string]int{}
	for i, t := range p.SampleType {
		index[t.Type] = i
	}
	value := func(s *profile.Sample, sampleType string) int64 {
		if i, ok := index[sampleType]; ok {
			return s.Value[i]
		}
		return 0
	}
	type place struct {
		function, file string
		line           int64
	}
	entries := map[place]*entry{}
	for _, s := range p.Sample {
		function, file, line := who(s)
		at := place{function, file, line}
		e := entries[at]
		if e == nil {
			e = &entry{Function: function, File: file, Line: line}
			entries[at] = e
		}
		e.AllocatedBytes += value(s, "gpu_alloc_bytes")
		e.Allocations += value(s, "gpu_alloc_objects")
		e.PeakBytes += value(s, "gpu_peak_bytes")
		e.FailedBytes += value(s, "gpu_failed_bytes")
		r.AllocatedBytes += value(s, "gpu_alloc_bytes")
		r.Allocations += value(s, "gpu_alloc_objects")
		r.PeakBytes += value(s, "gpu_peak_bytes")
		r.FailedBytes += value(s, "gpu_failed_bytes")
		r.Failed += value(s, "gpu_failed_objects")
	}
	for _, e := range entries {
		if r.AllocatedBytes > 0 {
			e.Share = float64(e.AllocatedBytes) / float64(r.AllocatedBytes)
		}
		r.Top = append(r.Top, *e)
	}
	slices.SortFunc(r.Top, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.AllocatedBytes, a.AllocatedBytes), cmp.Compare(b.FailedBytes, a.FailedBytes),
			cmp.Compare(a.Function, b.Function), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return r
}

// who gives the frame that a reader holds responsible: the innermost line of the program's own Python; without one, the
// innermost of a Python library; without Python, the innermost native frame that does more than pass the allocation on;
// and where there is nothing else, the innermost of all.
func who(s *profile.Sample) (function, file string, line int64) {
	best := worst
	for _, l := range s.Location {
		for _, n := range l.Line {
			if n.Function == nil {
				continue
			}
			if rank := rankOf(l.Mapping, n.Function); rank < best {
				best = rank
				function, file, line = n.Function.Name, n.Function.Filename, n.Line
			}
		}
	}
	return function, file, line
}

// worst is behind every rank that a frame may have.
const worst = 4

func rankOf(m *profile.Mapping, f *profile.Function) int {
	object := ""
	if m != nil {
		object = path.Base(m.File)
	}
	python := object == path.Base(noObject) && f.Filename != ""
	switch {
	case python && !slices.ContainsFunc(libraryFolders, func(folder string) bool { return strings.Contains(f.Filename, folder) }) && !strings.HasPrefix(f.Filename, "<frozen "):
		return 0
	case python:
		return 1
	case plumbing(object) || strings.HasPrefix(f.Name, "["):
		return 3
	}
	return 2
}

// noObject is agent/profile's mapping for frames of no file: Python's, and remarks.
const noObject = "[no object]"

// libraryFolders are where Python keeps what is not the program's own.
var libraryFolders = []string{"/site-packages/", "/dist-packages/", "/lib/python3"}

// plumbing tells whether an object only passes allocations on: the driver, the CUDA runtime, the C library, the interpreter.
func plumbing(object string) bool {
	return slices.ContainsFunc([]string{"libcuda.so", "libcudart.so", "libffi.so", "_ctypes.", "libpython", "python", "libc.so", "ld-linux"}, func(prefix string) bool {
		return strings.HasPrefix(object, prefix)
	})
}

func (r report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// writeText prints the first lines of the report for a person.
func (r report) writeText(w io.Writer, lines int) error {
	var b strings.Builder
	if r.Allocations == 0 && r.Failed == 0 {
		_, err := io.WriteString(w, "\nNo GPU memory was allocated.\n")
		return err
	}
	fmt.Fprintf(&b, "\n%s allocated in %s of GPU memory", bytesText(r.AllocatedBytes), count(r.Allocations, "allocation"))
	fmt.Fprintf(&b, "; held %s at the peak", bytesText(r.PeakBytes))
	if r.Failed > 0 {
		fmt.Fprintf(&b, "; refused %s in %s", bytesText(r.FailedBytes), count(r.Failed, "call"))
	}
	b.WriteString("\n")
	if len(r.Top) > 0 {
		b.WriteString("\n")
		t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		fmt.Fprint(t, "ALLOCATED\tSHARE\tCALLS\tAT PEAK\tFUNCTION\tWHERE\n")
		for i, e := range r.Top {
			if i == lines {
				break
			}
			fmt.Fprintf(t, "%s\t%.1f%%\t%d\t%s\t%s\t%s\n", bytesText(e.AllocatedBytes), 100*e.Share, e.Allocations, bytesText(e.PeakBytes), e.Function, where(e.File, e.Line))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if more := len(r.Top) - lines; more > 0 {
			fmt.Fprintf(&b, "and %d more; -o FILE keeps them all\n", more)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func where(file string, line int64) string {
	switch {
	case file == "":
		return "-"
	case line == 0:
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bytesText gives bytes in IEC units with three significant digits, exact below 1 KiB.
func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1024 && n > -1024 {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n) / 1024
	i := 0
	for (v >= 1023.5 || v <= -1023.5) && i < len(units)-1 {
		v /= 1024
		i++
	}
	digits := 2
	if v >= 9.995 {
		digits = 1
	}
	if v >= 99.95 {
		digits = 0
	}
	return fmt.Sprintf("%.*f %ciB", digits, v, units[i])
}
