package page_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take to show something: the machine that tests is small and busy.
const patience = 30 * time.Second

// startChromium starts a headless Chromium that ends with the test, and returns a context to open tabs from.
func startChromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs a browser: apt-get install --no-install-recommends chromium")
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Env("TZ=UTC"),
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

// tab is an open page. What its console says is a failure of the test, unless the test takes it first.
type tab struct {
	*testing.T
	context context.Context

	mu      sync.Mutex
	console []string
}

// open serves a handler and opens its page with a hash, in a tab of its own.
func open(t *testing.T, browser context.Context, handler http.Handler, hash string, first ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	server := httptest.NewServer(handler)
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{T: t, context: ctx}
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
		server.Close()
		for _, message := range p.takeConsole() {
			t.Error("the console says", message)
		}
	})
	p.do(first...)
	p.do(chromedp.Navigate(server.URL + "/" + hash))
	p.settle()
	return p
}

func (p *tab) takeConsole() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	console := p.console
	p.console = nil
	return console
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.context, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("the page: %v", err)
	}
}

// get is the value of an expression in JavaScript; a promise is awaited.
func get[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.context, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits for a condition in JavaScript, and tells what the page shows if it never holds.
func (p *tab) until(condition string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.context, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(0))); err != nil {
		shown, _ := chromedp.Run(p.context, chromedp.Evaluate[string](`document.body.innerText`))
		p.Fatalf("waiting for %s: %v; the page shows:\n%s", condition, err, shown)
	}
}

// settle waits until everything that was asked for has been drawn: d3 draws a frame later, on a timer of its own.
func (p *tab) settle() {
	p.Helper()
	p.until(`document.querySelector("main")?.getAttribute("aria-busy") === "false"`)
	p.until(`[...document.querySelectorAll("#flame g.frame")].every((frame) =>
		frame.querySelector("rect").getAttribute("width") === frame.getAttribute("width") &&
		(frame.querySelector("div").style.display === "none" || frame.querySelector("div").textContent))`)
}

func (p *tab) text(selector string) string {
	p.Helper()
	return plain(get[string](p, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector)))
}

// texts are the texts of all elements of a kind that are shown.
func (p *tab) texts(selector string) []string {
	p.Helper()
	texts := get[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility()).map((e) => e.innerText)`, selector))
	for i := range texts {
		texts[i] = plain(texts[i])
	}
	return texts
}

// frames are the accessible names of the frames drawn, in the order of the document.
func (p *tab) frames() []string {
	p.Helper()
	labels := get[[]string](p, `[...document.querySelectorAll("#flame g.frame")].map((frame) => frame.getAttribute("aria-label"))`)
	for i := range labels {
		labels[i] = plain(labels[i])
	}
	return labels
}

// plain has one ordinary space for every run of spaces, ends of lines, and spaces that do not break.
func plain(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

// click clicks the first element of a kind whose accessible name or text begins so.
func (p *tab) click(selector, text string) {
	p.Helper()
	found := get[bool](p, fmt.Sprintf(`(() => {
		const element = [...document.querySelectorAll(%q)].find((e) => (e.getAttribute("aria-label") ?? e.textContent).startsWith(%q));
		element?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
		return !!element;
	})()`, selector, text))
	if !found {
		p.Fatalf("no %s says %q", selector, text)
	}
	p.settle()
}

// set gives a field or a select a value as a user does.
func (p *tab) set(selector, value string) {
	p.Helper()
	got := get[string](p, fmt.Sprintf(`(() => {
		const element = document.querySelector(%q);
		element.value = %q;
		for (const type of ["input", "change"]) element.dispatchEvent(new Event(type, { bubbles: true }));
		return element.value;
	})()`, selector, value))
	if got != value {
		p.Fatalf("%s takes %q for %q", selector, got, value)
	}
	p.settle()
}

// dark asks for dark colours, as a browser at night.
func dark(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
	_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	return chromedp.Void{}, err
}

// screenshot writes the whole page to a file in the folder that VRAMPROF_SCREENSHOTS names, if it names one.
func (p *tab) screenshot(name string) {
	p.Helper()
	folder := os.Getenv("VRAMPROF_SCREENSHOTS")
	if folder == "" {
		return
	}
	image, err := chromedp.Run(p.context, chromedp.FullScreenshot(100))
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name), image, 0o644); err != nil {
		p.Fatal(err)
	}
}
