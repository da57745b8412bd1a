// Package page_test looks at the page of `vramprof serve` in a real browser, with profiles that a real agent has made of the
// demo's workloads. It needs root, since the agent loads programs into the kernel, and fails without.
package page_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/vramprof/vramprof/devserver/page/pagetest"
	"github.com/vramprof/vramprof/integration/fakegpu"
	"github.com/vramprof/vramprof/integration/processes"
)

var screenshot = flag.String("screenshot", "", "file for a picture of the page, as PNG")

const (
	allocBytes = "gpu:gpu_alloc_bytes:bytes:gpu:bytes"
	inUseBytes = "gpu:gpu_inuse_bytes:bytes:gpu:bytes"
	// steps of the training loop and their pause make enough intervals for a time line.
	steps, pause = "150", "0.2"
)

// TestPage has both versions of the demo's deployments profiled and sees on the page what the driver was asked for, and what
// grew. The training loops end before the page is asked, so their numbers stand still; the inference servers go on.
func TestPage(t *testing.T) {
	// An agent sees the whole machine, on which another run of this test may be.
	trainer, chat := fmt.Sprintf("trainer-%d", os.Getpid()), fmt.Sprintf("chat-%d", os.Getpid())
	if *screenshot != "" {
		trainer, chat = "trainer", "chat"
	}
	driver, err := fakegpu.Build(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	programs, err := processes.Build(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	serve := processes.Start(t, nil, programs.Vramprof, "serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(),
		"--interval", "2s", "--driver-library", driver.Library)
	url := serve.Await(`page=(http://\S+)`)

	trained := map[string]*processes.Process{}
	ledgers := map[string]string{}
	for _, version := range []string{"v1", "v2"} {
		start := func(service, program string, args ...string) *processes.Process {
			ledgers[service+version] = filepath.Join(t.TempDir(), "ledger")
			return processes.Start(t, append(driver.Env(ledgers[service+version]), "OTEL_SERVICE_NAME="+service, "OTEL_RESOURCE_ATTRIBUTES=service.version="+version), program, args...)
		}
		trained[version] = start(trainer, "/usr/bin/python3", driver.Train, "--steps", steps, "--sleep", pause, "--hold", "--version", version)
		start(chat, driver.Inference, "--version", version)
	}
	truth := map[string]fakegpu.Truth{}
	for version, p := range trained {
		p.Await("^hold$")
		calls, err := fakegpu.ReadLedger(ledgers[trainer+version])
		if err != nil {
			t.Fatal(err)
		}
		truth[version] = fakegpu.Total(calls)
	}
	p := pagetest.Open(t, pagetest.Chromium(t), url+"#service="+trainer+"&range=5m&type="+allocBytes, chromedp.EmulateViewport(1280, 900))
	awaitTotal(p, gib(truth["v1"].Alloc.Bytes+truth["v2"].Alloc.Bytes))

	title := pagetest.Get[string](p, `document.querySelector(".figure strong").title.replace(/\D/g, "")`)
	if want := fmt.Sprint(truth["v1"].Alloc.Bytes + truth["v2"].Alloc.Bytes); title != want {
		t.Errorf("the page says %s bytes, the driver was asked for %s", title, want)
	}
	for _, want := range []string{trainer, chat} {
		if !slices.ContainsFunc(p.Texts("#services li"), func(item string) bool { return strings.Contains(item, want) }) {
			t.Errorf("no %s among the services %q", want, p.Texts("#services li"))
		}
	}
	frames := p.Frames()
	if want := "total, " + gib(truth["v1"].Alloc.Bytes+truth["v2"].Alloc.Bytes) + ", "; !strings.HasPrefix(frames[0], want) {
		t.Errorf("the first frame is %q, want %q", frames[0], want)
	}
	mustDraw(t, frames, "step", "forward", "remember", "_ctypes", "cuMemAlloc_v2", "cuMemAllocAsync")

	compare(t, p, truth)

	p.Click("#services li a, #services li button", chat)
	p.Click("#modes button", "Explore")
	mustDraw(t, p.Frames(), "engine::Server::serve", "engine::KVCache::reserve")
}

// compare goes from the flame graph to the comparison of the versions.
func compare(t *testing.T, p *pagetest.Tab, truth map[string]fakegpu.Truth) {
	t.Helper()
	p.Click("#modes button", "Compare")
	before, after := truth["v1"].Alloc.Bytes, truth["v2"].Alloc.Bytes
	want := []string{gib(before), gib(after), "+" + gib(after-before)}
	if got := p.Texts("#summary .total strong"); !slices.Equal(got, want) {
		t.Errorf("totals %q, want %q", got, want)
	}
	// CPython before 3.11 has the bare name.
	mustDraw(t, p.Frames(), fmt.Sprintf("remember, 0 B to %s, +%s", gib(after-before), gib(after-before)))
	if *screenshot != "" {
		p.Screenshot(*screenshot)
	}
}

// awaitTotal waits for the page, which refreshes itself, to have all intervals.
func awaitTotal(p *pagetest.Tab, want string) {
	p.Helper()
	p.Until(fmt.Sprintf(`document.querySelector(".figure")?.innerText.replace(/\s+/g, " ").includes(%q)`, want))
	p.Settle()
}

// mustDraw fails unless every wanted function is in the name of a frame.
func mustDraw(t *testing.T, frames []string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !slices.ContainsFunc(frames, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("no %s among\n%s", want, strings.Join(frames, "\n"))
		}
	}
}

// gib is a number of bytes as the page shows it.
func gib(bytes uint64) string {
	scaled, unit := float64(bytes), 0
	for scaled >= 1023.5 {
		scaled /= 1024
		unit++
	}
	digits := 0
	switch {
	case scaled < 9.995:
		digits = 2
	case scaled < 99.95:
		digits = 1
	}
	return fmt.Sprintf("%.*f %s", digits, scaled, []string{"B", "KiB", "MiB", "GiB", "TiB"}[unit])
}
