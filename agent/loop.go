package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/vramprof/vramprof/agent/profile"
	"github.com/vramprof/vramprof/agent/push"
)

// Loop drains at every multiple of interval on the wall clock and hands the windows on, until ctx ends; what came since
// the last one is handed on before it returns. A drain that fails is tried again at the next multiple: counters go on, so
// nothing is lost but the finer view.
func (a *Agent) Loop(ctx context.Context, interval time.Duration, handle func(Window)) {
	start := time.Now()
	for {
		next := start.Truncate(interval).Add(interval)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			next = time.Now()
		}
		w, err := a.Drain(context.WithoutCancel(ctx), start)
		if err != nil {
			a.log.Error("interval not read, it becomes part of the next", "error", err)
		} else {
			w.End = next
			handle(w)
			start = next
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			start = next // keep to the clock
		}
	}
}

// Delivery says which profiles a window is pushed as.
type Delivery struct {
	Client *push.Client
	// NoGauges leaves out what is in use and at the peak, which a server can only sum.
	NoGauges bool
}

// Deliver pushes a window: for each series one profile of what was allocated and refused, and apart from it one of what is
// in use and one of the peak, since those are gauges. An error names a profile that is lost; the others are on their way.
func (a *Agent) Deliver(d Delivery, w Window) {
	groups := [][]profile.Group{{profile.Alloc, profile.Failed}, {profile.InUse}, {profile.Peak}}
	if d.NoGauges {
		groups = groups[:1]
	}
	for _, s := range w.Series {
		for _, g := range groups {
			if err := deliver(d.Client, w, s, g); err != nil {
				a.log.Error("profile not delivered", "service_name", s.Labels["service_name"], "groups", fmt.Sprint(g), "error", err)
			}
		}
	}
}

func deliver(client *push.Client, w Window, s Series, groups []profile.Group) error {
	options := profile.Options{Time: w.End, Duration: w.End.Sub(w.Start), Period: 1, Comments: w.Comments}
	pieces, err := profile.Pieces(options, s.Stacks, groups...)
	if err != nil {
		return err
	}
	for _, p := range pieces {
		if err := client.Push(push.Profile{Labels: s.Labels, Time: p.Time, Pprof: p.Pprof}); err != nil {
			return err
		}
	}
	return nil
}
