package page_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/vramprof/vramprof/devserver/page/pagetest"
)

func testHostileNames(t *testing.T, browser context.Context) {
	const hostile = `<img src=x onerror="alert(1)">"'\{}`
	stack := []frame{{"_start", "", 0, ""}, {hostile, hostile + ".py", 7, hostile}, {"cuMemAlloc_v2", "", 0, libcuda}}
	q := &querier{profiles: record(time.Now(), map[string]string{"service_name": hostile, "version": hostile}, []call{{stack, 5 * mib, 5 * mib}})}
	p := open(t, browser, q.handler(), "")
	mustHave(t, p.Frames(), hostile+", 5.00 MiB, 100 %")
	if got, want := p.Texts("#services li"), []string{hostile + " 5.00 MiB"}; !slices.Equal(got, want) {
		t.Errorf("services %q, want %q", got, want)
	}
	p.Hover("<img")
	p.MustSay("#tip", hostile, hostile+".py:7")
	if images := pagetest.Get[int](p, `document.querySelectorAll("img").length`); images != 0 {
		t.Errorf("%d images were made of names", images)
	}
	p = open(t, browser, q.handler(), pagetest.Get[string](p, `location.hash`))
	mustHave(t, p.Frames(), hostile+", 5.00 MiB, 100 %")
}

func testWidths(t *testing.T, browser context.Context) {
	for _, width := range []int64{1920, 1280, 768, 390} {
		for name, hash := range map[string]string{"explore": "#", "compare": "#compare=&type=" + inUseBytes, "table": "#compare=&view=table"} {
			t.Run(fmt.Sprint(name, " ", width), func(t *testing.T) {
				p := open(t, browser, (&querier{profiles: demo(time.Now())}).handler(), hash, chromedp.EmulateViewport(width, 844), pagetest.Dark)
				if over := pagetest.Get[float64](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
					t.Errorf("the page is %v pixels wider than the window", over)
				}
				picture(p, fmt.Sprintf("dark-%s-%d.png", name, width))
			})
		}
	}
}

// testSteadiness sums the layout shifts of a page that loads, as browsers count them: below 0.1 is what Web Vitals call good.
func testSteadiness(t *testing.T, browser context.Context) {
	for _, hash := range []string{"#", "#compare=", "#view=table", "#compare=&type=" + inUseBytes} {
		p := open(t, browser, (&querier{profiles: demo(time.Now())}).handler(), hash, chromedp.EmulateViewport(1280, 900))
		shift := pagetest.Get[float64](p, `new Promise((tell) => {
			const sum = (list) => list.getEntries().reduce((sum, entry) => sum + entry.value, 0);
			new PerformanceObserver((list) => tell(sum(list))).observe({ type: "layout-shift", buffered: true });
			setTimeout(() => tell(0), 500);
		})`)
		if shift >= 0.05 {
			t.Errorf("%s moves by %.3f while it loads", hash, shift)
		}
		t.Logf("%s: %.3f", hash, shift)
	}
}

func testManyFrames(t *testing.T, browser context.Context) {
	p := open(t, browser, (&querier{profiles: wide(time.Now(), 820)}).handler(), "", chromedp.EmulateViewport(1280, 900))
	drawn := len(p.Frames())
	if drawn < 8000 {
		t.Fatalf("%d frames drawn, want 8,000 for this test to mean something", drawn)
	}
	took := pagetest.Get[float64](p, `(async () => {
		const start = performance.now();
		document.querySelector('#flame g.frame[aria-label^="main"]').dispatchEvent(new MouseEvent("click", { bubbles: true }));
		await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
		return performance.now() - start;
	})()`)
	t.Logf("%d frames drawn again in %.0f ms", drawn, took)
	if took > 3000 {
		t.Errorf("drawing %d frames takes %.0f ms", drawn, took)
	}
	picture(p, "wide.png")
}
