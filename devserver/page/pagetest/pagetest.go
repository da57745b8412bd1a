// Package pagetest drives the page of `vramprof serve` in a real Chromium, as its users do: by what is shown and what can be
// clicked. Whatever the browser's console says fails the test.
package pagetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take to show something: the machine that tests is small and busy.
const patience = 30 * time.Second

// Chromium starts a headless Chromium that ends with the test, and returns a context to open tabs from. Its clock is in UTC,
// its window 1,280 pixels wide. A machine without Chromium fails the test.
func Chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs a browser: apt-get install --no-install-recommends chromium")
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Env("TZ=UTC", "TMPDIR="+t.TempDir()),
		chromedp.WindowSize(1280, 900),
	}
	for _, flag := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	browser, stop := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		stop()
		stopAllocator()
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return browser
}

// Tab is an open page. What its console says is a failure of the test, unless the test takes it first.
type Tab struct {
	*testing.T
	context context.Context

	mu      sync.Mutex
	console []string
}

// Open opens an address in a tab of its own, after the given actions, and returns when the page has drawn itself. The tab is
// closed with the test.
func Open(t *testing.T, browser context.Context, url string, first ...chromedp.Action[chromedp.Void]) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	p := &Tab{T: t, context: ctx}
	messages := chromedp.Console(ctx)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for message, err := range messages {
			if err != nil {
				return // the tab is closed
			}
			p.mu.Lock()
			p.console = append(p.console, message.String()+" "+message.URL)
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		for _, message := range p.TakeConsole() {
			t.Error("the console says", message)
		}
	})
	p.Do(first...)
	p.Do(chromedp.Navigate(url))
	p.Settle()
	return p
}

// TakeConsole returns what the console has said since the last time, which is then no failure.
func (p *Tab) TakeConsole() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	console := p.console
	p.console = nil
	return console
}

// Do runs actions of chromedp.
func (p *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.context, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("the page: %v", err)
	}
}

// Get is the value of an expression in JavaScript; a promise is awaited.
func Get[T any](p *Tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.context, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return value
}

// Until waits for a condition in JavaScript, and tells what the page shows if it never holds.
func (p *Tab) Until(condition string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.context, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(0))); err != nil {
		shown, _ := chromedp.Run(p.context, chromedp.Evaluate[string](`document.body.innerText`))
		p.Fatalf("waiting for %s: %v; the page shows:\n%s", condition, err, shown)
	}
}

// Settle waits until everything that was asked for has been drawn: d3 draws a frame later, on a timer of its own.
func (p *Tab) Settle() {
	p.Helper()
	p.Until(`document.querySelector("main")?.getAttribute("aria-busy") === "false"`)
	p.Until(`[...document.querySelectorAll("#flame g.frame")].every((frame) =>
		frame.querySelector("rect").getAttribute("width") === frame.getAttribute("width") &&
		(frame.querySelector("div").style.display === "none" || frame.querySelector("div").textContent))`)
}

// Text is the text of the first element that a CSS selector finds, empty if there is none.
func (p *Tab) Text(selector string) string {
	p.Helper()
	return Plain(Get[string](p, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector)))
}

// Texts are the texts of all elements of a kind that are shown.
func (p *Tab) Texts(selector string) []string {
	p.Helper()
	texts := Get[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility()).map((e) => e.innerText)`, selector))
	for i := range texts {
		texts[i] = Plain(texts[i])
	}
	return texts
}

// Frames are the accessible names of the frames drawn, in the order of the document.
func (p *Tab) Frames() []string {
	p.Helper()
	labels := Get[[]string](p, `[...document.querySelectorAll("#flame g.frame")].map((frame) => frame.getAttribute("aria-label"))`)
	for i := range labels {
		labels[i] = Plain(labels[i])
	}
	return labels
}

// Plain has one ordinary space for every run of spaces, ends of lines, and spaces that do not break.
func Plain(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

// Click clicks the first element of a kind whose accessible name or text begins so.
func (p *Tab) Click(selector, text string) {
	p.Helper()
	found := Get[bool](p, fmt.Sprintf(`(() => {
		const element = [...document.querySelectorAll(%q)].find((e) => (e.getAttribute("aria-label") ?? e.textContent).startsWith(%q));
		element?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
		return !!element;
	})()`, selector, text))
	if !found {
		p.Fatalf("no %s says %q", selector, text)
	}
	p.Settle()
}

// Set gives a field or a select a value as a user does.
func (p *Tab) Set(selector, value string) {
	p.Helper()
	got := Get[string](p, fmt.Sprintf(`(() => {
		const element = document.querySelector(%q);
		element.value = %q;
		for (const type of ["input", "change"]) element.dispatchEvent(new Event(type, { bubbles: true }));
		return element.value;
	})()`, selector, value))
	if got != value {
		p.Fatalf("%s takes %q for %q", selector, got, value)
	}
	p.Settle()
}

// Dark asks for dark colours, as a browser at night.
func Dark(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
	_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	return chromedp.Void{}, err
}

// Screenshot writes the whole page to a file, as PNG.
func (p *Tab) Screenshot(file string) {
	p.Helper()
	image, err := chromedp.Run(p.context, chromedp.FullScreenshot(100))
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(file, image, 0o644); err != nil {
		p.Fatal(err)
	}
}

// Hover moves the mouse onto the first frame whose name begins so, and waits for its tooltip, #tip.
func (p *Tab) Hover(name string) {
	p.Helper()
	at := Get[[]float64](p, fmt.Sprintf(`(async () => {
		const rect = document.querySelector('#flame g.frame[aria-label^=%q] rect');
		rect.scrollIntoView({ block: "center" });
		await new Promise((scrolled) => requestAnimationFrame(() => requestAnimationFrame(scrolled)));
		const box = rect.getBoundingClientRect();
		return [box.x + box.width / 2, box.y + box.height / 2];
	})()`, name))
	p.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
	p.Until(`!document.querySelector("#tip").hidden`)
}

// Drag draws the mouse over a part of the chart that a selector finds, from and to being shares of its width.
func (p *Tab) Drag(selector string, from, to float64) {
	p.Helper()
	box := Get[[]float64](p, fmt.Sprintf(`(() => { const b = document.querySelector(%q).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()`, selector+" .u-over"))
	y := box[1] + box[3]/2
	press := chromedp.Button("left")
	p.Do(
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, box[0]+from*box[2], y),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, box[0]+from*box[2], y, press, chromedp.ClickCount(1)),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, box[0]+to*box[2], y, press),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, box[0]+to*box[2], y, press, chromedp.ClickCount(1)),
	)
}

// MustSay fails unless an element's text has each wanted part.
func (p *Tab) MustSay(selector string, wanted ...string) {
	p.Helper()
	text := p.Text(selector)
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			p.Errorf("%s says %q, want %q", selector, text, want)
		}
	}
}
