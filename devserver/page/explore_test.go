package page_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

func TestPage(t *testing.T) {
	browser := startChromium(t)
	now := time.Now()
	t.Run("explore", func(t *testing.T) {
		q := &querier{profiles: demo(now)}
		p := open(t, browser, q.handler(), "", chromedp.EmulateViewport(1280, 900))
		p.screenshot("explore.png")
		p.set("#search", "forward")
		get[bool](p, `(document.querySelector('#flame g.frame[aria-label^="Attention"]').dispatchEvent(new MouseEvent("mouseover", {bubbles:true, clientX:500, clientY:600})), true)`)
		p.screenshot("search.png")
		p.set("#search", "")
		p.click("#flame g.frame", "train_step")
		p.screenshot("zoom.png")
		p.click("#reset", "Show")
		p.click("#directions button", "Allocators")
		p.screenshot("reversed.png")
		p.click("#views button", "Table")
		p.screenshot("table.png")
		p.click("#views button", "Flame")
		p.click("#directions button", "Callers")
		p.set("#types select", "gpu:gpu_inuse_bytes:bytes:gpu:bytes")
		p.screenshot("gauge.png")
		p.click("#modes button", "Compare")
		p.screenshot("compare.png")
		p.click("#views button", "Table")
		p.screenshot("compare-table.png")
		p = open(t, browser, q.handler(), "#type=gpu:gpu_inuse_bytes:bytes:gpu:bytes&compare=&to.range=5m", chromedp.EmulateViewport(390, 844), dark)
		p.screenshot("phone-dark.png")
		p = open(t, browser, q.handler(), "#service=inference", chromedp.EmulateViewport(1280, 844), dark)
		p.screenshot("dark.png")
		p = open(t, browser, (&querier{}).handler(), "", chromedp.EmulateViewport(1280, 844))
		p.screenshot("empty.png")
		p = open(t, browser, (&querier{profiles: wide(now, 800)}).handler(), "", chromedp.EmulateViewport(1280, 844))
		p.screenshot("wide.png")
	})
}
