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

func testCompare(t *testing.T, browser context.Context) {
	now := time.Now()
	q := &querier{profiles: demo(now)}
	p := open(t, browser, q.handler(), "#service=train&type="+inUseBytes, chromedp.EmulateViewport(1280, 900))
	p.Click("#modes button", "Compare")
	// The first version against the last, unasked.
	p.MustSay(".baseline ~ .chip", "version = v1")
	p.MustSay(".comparison ~ .chip", "version = v2")
	if got, want := p.Texts("#summary .total strong"), []string{"3.19 GiB", "4.31 GiB", "+1.13 GiB"}; !slices.Equal(got, want) {
		t.Errorf("totals %q, want %q", got, want)
	}
	p.MustSay("#summary", "+35.3 %", "snapshot "+now.UTC().Truncate(interval).Format(time.TimeOnly))
	mustHave(t, p.Frames(),
		"total, 3.19 GiB to 4.31 GiB, +1.13 GiB",
		"Attention.forward, 1.13 GiB to 2.25 GiB, +1.13 GiB",
		"load_weights, 1.50 GiB to 1.50 GiB, 0 B",
	)
	fill := func(name string) string {
		return pagetest.Get[string](p, fmt.Sprintf(`document.querySelector('#flame g.frame[aria-label^=%q] rect').getAttribute("fill")`, name))
	}
	if got, want := fill("load_weights"), "var(--same)"; got != want {
		t.Errorf("load_weights did not grow and is filled with %s, want %s", got, want)
	}
	if got, want := fill("Attention.forward"), "color-mix(in oklab, var(--grew) 62.5%, var(--same))"; got != want {
		t.Errorf("Attention.forward doubled and is filled with %s, want %s", got, want)
	}
	p.Hover("Attention.forward")
	p.MustSay("#tip", "Baseline 1.13 GiB", "Comparison 2.25 GiB", "Growth +1.13 GiB", "+100.0 %", "/srv/model.py:57")
	picture(p, "compare.png")

	p.Click("#views button", "Table")
	if got, want := p.Texts("#table tbody tr")[0], "Attention.forward 1.13 GiB 2.25 GiB +1.13 GiB +100.0 % 0 B"; got != want {
		t.Errorf("what grew most is %q, want %q", got, want)
	}
	picture(p, "compare-table.png")

	hash := pagetest.Get[string](p, `location.hash`)
	again := open(t, browser, q.handler(), hash)
	if got, want := again.Texts("#summary .total strong"), []string{"3.19 GiB", "4.31 GiB", "+1.13 GiB"}; !slices.Equal(got, want) {
		t.Errorf("the link %s shows the totals %q, want %q", hash, got, want)
	}
}

// testCompareTimes compares a service with itself: everything doubled, which a graph of shares would not show.
func testCompareTimes(t *testing.T, browser context.Context) {
	now := time.Now().Truncate(interval)
	labels := map[string]string{"service_name": "train"}
	before, after := now.Add(-10*time.Minute), now.Add(-5*time.Minute)
	q := &querier{profiles: slices.Concat(
		record(before, labels, []call{{forward, 300 * mib, 300 * mib}, {mlp, 100 * mib, 100 * mib}}),
		record(after, labels, []call{{forward, 600 * mib, 600 * mib}, {mlp, 200 * mib, 200 * mib}}),
	)}
	span := func(at time.Time) string {
		return fmt.Sprintf("%d-%d", at.Add(-time.Minute).UnixMilli(), at.Add(time.Minute).UnixMilli())
	}
	for _, id := range []string{allocBytes, inUseBytes} {
		t.Run(id, func(t *testing.T) {
			p := open(t, browser, q.handler(), "#compare=&service=train&type="+id+"&range="+span(before)+"&to.range="+span(after))
			if got, want := p.Texts("#summary .total strong"), []string{"400 MiB", "800 MiB", "+400 MiB"}; !slices.Equal(got, want) {
				t.Errorf("totals %q, want %q", got, want)
			}
			p.MustSay("#summary", "+100.0 %")
			mustHave(t, p.Frames(), "Attention.forward, 300 MiB to 600 MiB, +300 MiB", "MLP.forward, 100 MiB to 200 MiB, +100 MiB")
		})
	}
	p := open(t, browser, q.handler(), "#compare=&service=train&type="+allocBytes+"&range="+span(before)+"&to.range=15m")
	p.MustSay("#summary", "The windows differ in length, 2 min and 15 min")
}
