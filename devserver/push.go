package devserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/devserver/ingest"
	"github.com/vramprof/vramprof/devserver/store"
)

// reasonStorage is why a good series was not kept: the disk did not take it.
const reasonStorage = "storage"

// pusher implements push.v1.PusherService.
type pusher struct {
	store   *store.Store
	logger  *slog.Logger
	now     func() time.Time
	kept    prometheus.Counter
	refused *prometheus.CounterVec
}

func newPusher(profiles *store.Store, o Options, registry prometheus.Registerer) *pusher {
	p := &pusher{
		store: profiles, logger: o.Logger, now: o.Now,
		kept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "vramprof_devserver_profiles_kept_total", Help: "Profiles stored, one for each profile type and label set.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vramprof_devserver_series_refused_total", Help: "Series of a push that were refused, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range ingest.Reasons() {
		p.refused.WithLabelValues(string(reason))
	}
	p.refused.WithLabelValues(reasonStorage)
	registry.MustRegister(p.kept, p.refused)
	return p
}

// Push keeps every series that is good, and answers the error of the first that is not. What it answered for is on disk.
func (p *pusher) Push(ctx context.Context, r *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	if len(r.Msg.Series) == 0 {
		p.refused.WithLabelValues(string(ingest.ReasonNoProfiles)).Inc()
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("no profiles received: the push has no series"))
	}
	var first error
	for i, series := range r.Msg.Series {
		if err := p.keep(ctx, series); err != nil {
			p.logger.WarnContext(ctx, "push refused", "series", i, "error", err)
			if first == nil {
				first = err
			}
		}
	}
	if first != nil {
		return nil, first
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func (p *pusher) keep(ctx context.Context, series *pushv1.RawProfileSeries) error {
	profiles, refusal := ingest.Convert(series, p.now())
	if len(profiles) > 0 {
		err := p.store.Append(ctx, profiles)
		if errors.Is(err, store.ErrTooLarge) {
			p.refused.WithLabelValues(string(ingest.ReasonTooLarge)).Inc()
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
		if err != nil {
			p.refused.WithLabelValues(reasonStorage).Inc()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf("store the profile: %w", err))
		}
		for _, profile := range profiles {
			p.kept.Add(float64(len(profile.Series)))
		}
	}
	if refusal == nil {
		return nil
	}
	code, reason := connect.CodeUnknown, "unknown"
	if r, ok := errors.AsType[*ingest.Refusal](refusal); ok {
		code, reason = r.Code, string(r.Reason)
	}
	p.refused.WithLabelValues(reason).Inc()
	return connect.NewError(code, refusal)
}
