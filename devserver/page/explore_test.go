package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/vramprof/vramprof/devserver/page/pagetest"
)

const (
	allocBytes = "gpu:gpu_alloc_bytes:bytes:gpu:bytes"
	inUseBytes = "gpu:gpu_inuse_bytes:bytes:gpu:bytes"
)

// TestPage drives the page in a real browser. VRAMPROF_SCREENSHOTS names a folder for pictures of what it saw.
func TestPage(t *testing.T) {
	browser := pagetest.Chromium(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"flame graph":       testFlameGraph,
		"zoom and search":   testZoomAndSearch,
		"keyboard":          testKeyboard,
		"table":             testTable,
		"filters":           testFilters,
		"dragging":          testDragging,
		"edges":             testEdges,
		"gauge":             testGauge,
		"compare":           testCompare,
		"compare two times": testCompareTimes,
		"refresh":           testRefresh,
		"empty":             testEmpty,
		"nothing selected":  testNothing,
		"errors":            testErrors,
		"hostile names":     testHostileNames,
		"widths":            testWidths,
		"steadiness":        testSteadiness,
		"many frames":       testManyFrames,
	} {
		t.Run(name, func(t *testing.T) { test(t, browser) })
	}
}

// open serves a page and opens it with a hash, in a tab of its own.
func open(t *testing.T, browser context.Context, handler http.Handler, hash string, first ...chromedp.Action[chromedp.Void]) *pagetest.Tab {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return pagetest.Open(t, browser, server.URL+"/"+hash, first...)
}

// picture writes what a tab shows to the folder that VRAMPROF_SCREENSHOTS names, if it names one.
func picture(p *pagetest.Tab, name string) {
	p.Helper()
	if folder := os.Getenv("VRAMPROF_SCREENSHOTS"); folder != "" {
		p.Screenshot(filepath.Join(folder, name))
	}
}

// mustHave fails unless each wanted text is among those found.
func mustHave(t *testing.T, found []string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !slices.Contains(found, want) {
			t.Errorf("no %q among\n%s", want, strings.Join(found, "\n"))
		}
	}
}

func testFlameGraph(t *testing.T, browser context.Context) {
	p := open(t, browser, (&querier{profiles: demo(time.Now())}).handler(), "")
	if got, want := p.Texts("#services li"), []string{"train 8.88 GiB", "inference 6.66 GiB"}; !slices.Equal(got, want) {
		t.Errorf("services %q, want %q", got, want)
	}
	mustHave(t, p.Frames(),
		"total, 8.88 GiB, 100 %",
		"<module>, 8.88 GiB, 100 %",
		"Trainer.fit, 5.88 GiB, 66.2 %",
		"Attention.forward, 3.38 GiB, 38.0 %",
		"c10::cuda::CUDACachingAllocator::malloc(unsigned long), 3.38 GiB, 38.0 %",
		"cuMemAlloc_v2, 3.38 GiB, 38.0 %",
	)
	p.MustSay(".figure", "8.88 GiB allocated")
	if got, want := pagetest.Plain(pagetest.Get[string](p, `document.querySelector(".figure strong").title`)), "9 529 458 688 bytes"; got != want {
		t.Errorf("the total is %q, want %q", got, want)
	}
	if got, want := p.Texts(".lines li"), []string{"v1 3.88 GiB", "v2 5.00 GiB", "whole window"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	for name, kind := range map[string]string{"train_step": "python", "_start": "native", "at::empty": "native", "cuMemAlloc_v2": "driver"} {
		fill := pagetest.Get[string](p, fmt.Sprintf(`document.querySelector('#flame g.frame[aria-label^=%q] rect').getAttribute("fill")`, name))
		if !strings.HasPrefix(fill, "var(--"+kind+"-") {
			t.Errorf("%s is filled with %s, want the colour of %s", name, fill, kind)
		}
	}
	p.Hover("Attention.forward")
	p.MustSay("#tip", "Attention.forward", "/srv/model.py:57", "Total 3.38 GiB 38.0 %", "Self 0 B")
	picture(p, "explore.png")

	p.Click("#services button", "inference")
	mustHave(t, p.Frames(), "engine::KVCache::reserve(unsigned long), 6.00 GiB, 90.1 %", "libplugin.so+0x1234, 576 MiB, 8.5 %", "[truncated: no unwind rows], 96.0 MiB, 1.4 %")
	p.Click("#directions button", "Allocators first")
	mustHave(t, p.Frames(), "cuMemCreate, 6.00 GiB, 90.1 %", "cuMemAllocAsync, 576 MiB, 8.5 %", "cuMemAlloc_v2, 96.0 MiB, 1.4 %")
}

func testZoomAndSearch(t *testing.T, browser context.Context) {
	q := &querier{profiles: demo(time.Now())}
	p := open(t, browser, q.handler(), "#service=train")
	p.Click("#flame g.frame", "train_step")
	zoomed := p.Frames()
	mustHave(t, zoomed, "main, 8.88 GiB, 100 %", "train_step, 4.88 GiB, 54.9 %", "MLP.forward, 1.50 GiB, 16.9 %")
	if joined := strings.Join(zoomed, "\n"); strings.Contains(joined, "load_weights") {
		t.Errorf("load_weights is beside train_step and still drawn:\n%s", joined)
	}
	wide := func(name string) bool {
		return pagetest.Get[bool](p, fmt.Sprintf(`+document.querySelector('#flame g.frame[aria-label^=%q]').getAttribute("width") === document.querySelector("#flame").clientWidth`, name))
	}
	if !wide("train_step") {
		t.Error("the frame zoomed to does not fill the width")
	}
	p.Click("#reset", "Show everything, not only train_step")
	mustHave(t, p.Frames(), "load_weights, 3.00 GiB, 33.8 %")
	if wide("train_step") {
		t.Error("train_step still fills the width")
	}

	p.Set("#search", "FORWARD")
	p.MustSay("#matched", "4.88 GiB, 54.9 %") // MLP and Attention are within Model.forward: counted once
	highlighted := pagetest.Get[[]string](p, `[...document.querySelectorAll("#flame g.frame")].filter((f) => f.querySelector("rect").getAttribute("fill") === "var(--match)").map((f) => f.getAttribute("aria-label").split(",")[0])`)
	slices.Sort(highlighted)
	if want := []string{"Attention.forward", "MLP.forward", "Model.forward"}; !slices.Equal(highlighted, want) {
		t.Errorf("highlighted %q, want %q", highlighted, want)
	}
	if hash := pagetest.Get[string](p, `location.hash`); !strings.Contains(hash, "search=FORWARD") {
		t.Errorf("the address %s lacks the search", hash)
	}
	again := open(t, browser, q.handler(), pagetest.Get[string](p, `location.hash`))
	again.MustSay("#matched", "4.88 GiB, 54.9 %")
}

func testKeyboard(t *testing.T, browser context.Context) {
	p := open(t, browser, (&querier{profiles: demo(time.Now())}).handler(), "#service=train")
	focused := func() string {
		return pagetest.Plain(pagetest.Get[string](p, `document.activeElement.getAttribute("aria-label") ?? ""`))
	}
	p.Do(chromedp.Focus(chromedp.CSS("#search")))
	p.Do(chromedp.KeyEvent(kb.Tab))
	if got, want := focused(), "total, 8.88 GiB, 100 %"; got != want {
		t.Fatalf("Tab after the search reaches %q, want %q", got, want)
	}
	for _, step := range []struct{ key, want string }{
		{kb.ArrowDown, "_start, 8.88 GiB, 100 %"},
		{strings.Repeat(kb.ArrowDown, 6), "Trainer.fit, 5.88 GiB, 66.2 %"},
		{kb.ArrowRight, "load_weights, 3.00 GiB, 33.8 %"},
		{kb.ArrowLeft, "Trainer.fit, 5.88 GiB, 66.2 %"},
		{kb.ArrowUp, "main, 8.88 GiB, 100 %"},
		{kb.ArrowDown + kb.Enter, "Trainer.fit, 5.88 GiB, 66.2 %"},
	} {
		p.Do(chromedp.KeyEvent(step.key))
		if got := focused(); got != step.want {
			t.Fatalf("after %q the focus is on %q, want %q", step.key, got, step.want)
		}
	}
	p.Settle()
	p.MustSay("#reset", "not only Trainer.fit")
	p.MustSay("#tip", "Trainer.fit", "/srv/trainer.py:41", "5.88 GiB")
	p.Do(chromedp.KeyEvent(kb.Escape))
	p.Settle()
	mustHave(t, p.Frames(), "load_weights, 3.00 GiB, 33.8 %")
}

func testTable(t *testing.T, browser context.Context) {
	p := open(t, browser, (&querier{profiles: demo(time.Now())}).handler(), "#service=inference&view=table")
	if got, want := p.Texts("#table tbody tr")[0], "_start 6.66 GiB 100 % 0 B 0 %"; got != want {
		t.Errorf("the first row is %q, want %q", got, want)
	}
	p.Click("#table thead button", "Self")
	if got, want := p.Texts("#table tbody tr")[0], "cuMemCreate 6.00 GiB 90.1 % 6.00 GiB 90.1 %"; got != want {
		t.Errorf("the first row by self is %q, want %q", got, want)
	}
	p.Click("#table tbody button", "engine::KVCache")
	p.MustSay("#matched", "6.00 GiB, 90.1 %")
	if rows := p.Texts("#table tbody tr"); len(rows) != 1 {
		t.Errorf("%d rows match one function: %q", len(rows), rows)
	}
}

func testFilters(t *testing.T, browser context.Context) {
	q := &querier{profiles: demo(time.Now())}
	p := open(t, browser, q.handler(), "#service=train")
	p.Click(".chip", "+ Filter")
	p.Set(".filter select", "version")
	p.Until(`!document.querySelector(".filter select:nth-of-type(3)").disabled`)
	p.Set(".filter select:nth-of-type(3)", "v2")
	p.MustSay(".chip", "version = v2")
	p.MustSay(".figure", "5.00 GiB")
	if got, want := q.lastMerge(t).LabelSelector, `{service_name="train", version="v2"}`; got != want {
		t.Errorf("selector %s, want %s", got, want)
	}
	p.Do(chromedp.NavigateBack())
	p.Settle()
	p.MustSay(".figure", "8.88 GiB")
	p.Do(chromedp.NavigateForward())
	p.Settle()
	p.Click(".chip", "Remove the filter version=v2")
	p.MustSay(".figure", "8.88 GiB")
}

func testDragging(t *testing.T, browser context.Context) {
	q := &querier{profiles: demo(time.Now())}
	p := open(t, browser, q.handler(), "#service=train&range=5m")
	before := q.lastMerge(t)
	p.Drag(".panel", 0.5, 0.999)
	p.Until(`/range=\d+-\d+/.test(location.hash)`)
	p.Settle()
	after := q.lastMerge(t)
	length, middle := before.End-before.Start, before.Start+(before.End-before.Start)/2
	if after.Start < middle-15_000 || after.Start > middle || after.End != before.End {
		t.Errorf("dragged over the second half of %d ms from %d: asked for %d to %d", length, before.Start, after.Start, after.End)
	}
	if got := p.Texts(".panel input"); len(got) != 2 {
		t.Errorf("%d fields for a range from … to …, want 2", len(got))
	}
}

// testEdges looks at a window with profiles on both of its edges: the time line and the flame graph both leave out the one
// and take the other, so that two windows side by side have the sum of one.
func testEdges(t *testing.T, browser context.Context) {
	edge := time.Now().Truncate(time.Minute).Add(-5 * time.Minute)
	labels := map[string]string{"service_name": "train"}
	var profiles []recorded
	for minute := range 3 {
		profiles = append(profiles, record(edge.Add(time.Duration(minute)*time.Minute), labels, []call{{forward, mib << (10 * minute), mib}})...)
	}
	q := &querier{profiles: profiles}
	for minute, want := range []string{"1.00 GiB", "1.00 TiB"} {
		from := edge.Add(time.Duration(minute) * time.Minute)
		p := open(t, browser, q.handler(), fmt.Sprintf("#service=train&range=%d-%d", from.UnixMilli(), from.Add(time.Minute).UnixMilli()))
		p.MustSay(".figure", want+" allocated")
		p.MustSay(".lines", "total "+want)
		p.MustSay("#services", "train "+want)
	}
}

func testGauge(t *testing.T, browser context.Context) {
	now := time.Now()
	q := &querier{profiles: demo(now)}
	p := open(t, browser, q.handler(), "#service=train&type="+inUseBytes)
	latest := now.Truncate(interval).UnixMilli()
	mustSnapshot := func(at int64) {
		t.Helper()
		if r := q.lastMerge(t); r.Start <= at-1000 || r.Start > at || r.End < at || r.End >= at+1000 {
			t.Errorf("asked for %d to %d, want one snapshot at %d", r.Start, r.End, at)
		}
	}
	mustSnapshot(latest)
	// 12 snapshots are in the window; one is 7.5 GiB.
	p.MustSay(".figure", "7.50 GiB in use", "snapshot of "+now.UTC().Truncate(interval).Format(time.TimeOnly), "the latest of 12")
	mustHave(t, p.Frames(), "total, 7.50 GiB, 100 %", "Attention.forward, 3.38 GiB, 45.0 %", "load_weights, 3.00 GiB, 40.0 %")
	if got, want := p.Texts("#services li"), []string{"train 7.50 GiB", "inference 6.22 GiB"}; !slices.Equal(got, want) {
		t.Errorf("services %q, want %q", got, want)
	}
	picture(p, "gauge.png")

	// The first snapshot: 2 times (1,536 + 512 + 64) MiB, 96 and 192 MiB.
	width := pagetest.Get[float64](p, `document.querySelector(".panel .u-over").clientWidth`)
	first := now.Truncate(interval).Add(-11 * interval)
	window := 15 * time.Minute
	end := now.Truncate(time.Second).Add(time.Second)
	x := width * (1 - float64(end.Sub(first))/float64(window))
	box := pagetest.Get[[]float64](p, `(() => { const b = document.querySelector(".panel .u-over").getBoundingClientRect(); return [b.x, b.y]; })()`)
	p.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, box[0]+x, box[1]+40), chromedp.MouseClickXY(box[0]+x, box[1]+40))
	p.Until(`location.hash.includes("at=")`)
	p.Settle()
	mustSnapshot(first.UnixMilli())
	p.MustSay(".figure", "4.41 GiB in use", "chosen of 12")
	p.Click(".figure button", "Latest")
	mustSnapshot(latest)
}

func testRefresh(t *testing.T, browser context.Context) {
	now := time.Now()
	q := &querier{profiles: demo(now.Add(-interval))}
	// The page's own timer takes 15 s; this one takes a call.
	catchTimer := func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: `const real = window.setInterval; window.setInterval = (callback, every) => every === 15000 ? (window.tick = callback, 1) : real(callback, every);`,
		})
		return chromedp.Void{}, err
	}
	p := open(t, browser, q.handler(), "#service=train", catchTimer)
	p.Click("#flame g.frame", "train_step")
	q.add(record(now, map[string]string{"service_name": "train", "version": "v2"}, []call{{forward, 1024 * mib, mib}}))
	pagetest.Get[bool](p, `(window.tick(), true)`)
	p.Until(`document.querySelector(".figure").innerText.startsWith("9.88")`)
	p.Settle()
	mustHave(t, p.Frames(), "train_step, 5.88 GiB, 59.5 %")
	p.MustSay("#reset", "not only train_step")
	p.Click("#refresh", "Auto-refresh")
	q.add(record(now, map[string]string{"service_name": "train", "version": "v2"}, []call{{forward, 1024 * mib, mib}}))
	asked := q.asked()
	pagetest.Get[bool](p, `(window.tick(), true)`)
	p.Settle()
	if again := q.asked(); again != asked {
		t.Errorf("asked %d times more with auto-refresh off", again-asked)
	}
}

func testEmpty(t *testing.T, browser context.Context) {
	q := &querier{}
	p := open(t, browser, q.handler(), "")
	p.MustSay("#empty", "No profiles from", "vramprof serve", "vramprof run -- python train.py", "--pyroscope-url http://127.0.0.1:", "Last 24 hours")
	picture(p, "empty.png")
	q.add(demo(time.Now().Add(-30 * time.Minute)))
	p.Click("#empty button", "Last hour")
	p.MustSay(".figure", "8.88 GiB allocated")
}

func testNothing(t *testing.T, browser context.Context) {
	p := open(t, browser, (&querier{profiles: demo(time.Now())}).handler(), "#service=train&filter=version%3Dv9")
	p.MustSay("#nothing", "Nothing allocated here", "fewer filters")
	p.MustSay(".figure", "0 B")
}

func testErrors(t *testing.T, browser context.Context) {
	q := &querier{profiles: demo(time.Now())}
	q.setFailure(connect.NewError(connect.CodeResourceExhausted, errors.New("the store is full of something")))
	p := open(t, browser, q.handler(), "")
	p.MustSay("#error", "resource_exhausted", "the store is full of something", "ProfileTypes")
	if console := p.TakeConsole(); len(console) == 0 {
		t.Error("the browser's console does not tell of the failed request; it should tell of every problem")
	}
	q.setFailure(nil)
	p.Click("#error button", "Try again")
	if shown := p.Texts("#error"); len(shown) > 0 {
		t.Errorf("the error %q stays after it is over", shown)
	}
	p.MustSay(".figure", "8.88 GiB allocated")

	q.setFailure(http.ErrAbortHandler) // any other error than Connect's has its code unknown
	p.Click("#services button", "inference")
	p.MustSay("#error", "unknown")
	p.TakeConsole()
}
