package devserver_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

// large is a profile of 300 stacks of 40 frames with four types, as an agent pushes it.
func large(b *testing.B) *profile.Profile {
	b.Helper()
	p := &profile.Profile{PeriodType: &profile.ValueType{Type: "gpu", Unit: "bytes"}, Period: 1}
	for _, name := range []string{"gpu_alloc_bytes", "gpu_alloc_objects", "gpu_inuse_bytes", "gpu_peak_bytes"} {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: name, Unit: "bytes"})
	}
	for i := range uint64(600) {
		p.Function = append(p.Function, &profile.Function{ID: i + 1, Name: fmt.Sprintf("at::native::kernel_%d(at::Tensor const&)", i), SystemName: fmt.Sprintf("_ZN2at6native%dERKNS_6TensorE", i), Filename: fmt.Sprintf("/src/aten/src/ATen/native/f%d.cpp", i%50)})
		p.Location = append(p.Location, &profile.Location{ID: i + 1, Line: []profile.Line{{Function: p.Function[i], Line: int64(i)}}})
	}
	for i := range 300 {
		sample := &profile.Sample{Value: []int64{int64(i + 1), 1, int64(i + 2), int64(i + 3)}}
		for depth := range 40 { // what is near the root is common to many, as it is in programs
			sample.Location = append(sample.Location, p.Location[(depth*7+(i>>(depth/4))*13)%len(p.Location)])
		}
		p.Sample = append(p.Sample, sample)
	}
	return p
}

func encoded(b *testing.B, p *profile.Profile, moment time.Time) *pushv1.PushRequest {
	b.Helper()
	p.TimeNanos = moment.UnixNano()
	var raw bytes.Buffer
	if err := p.Write(&raw); err != nil {
		b.Fatal(err)
	}
	return &pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{seriesOf("v1", raw.Bytes())}}
}

// BenchmarkPush is one profile over HTTP, to the disk.
func BenchmarkPush(b *testing.B) {
	_, server := serve(b, b.TempDir())
	pusher := pushv1connect.NewPusherServiceClient(http.DefaultClient, server.URL)
	request := encoded(b, large(b), time.Now().Add(-time.Minute))
	request.Series[0].Labels = append(request.Series[0].Labels, &typesv1.LabelPair{Name: "pod"})
	i := 0
	for b.Loop() {
		i++
		request.Series[0].Labels[3].Value = fmt.Sprint(i) // the same series and time would be a retry, which costs less
		if _, err := pusher.Push(b.Context(), connect.NewRequest(request)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkQuery asks over 20 profiles, which is five minutes of one agent, and over an hour of them.
func BenchmarkQuery(b *testing.B) {
	_, server := serve(b, b.TempDir())
	pusher := pushv1connect.NewPusherServiceClient(http.DefaultClient, server.URL)
	querier := querierv1connect.NewQuerierServiceClient(http.DefaultClient, server.URL)
	p, last := large(b), time.Now()
	for i := range 240 {
		if _, err := pusher.Push(b.Context(), connect.NewRequest(encoded(b, p, last.Add(-time.Duration(i)*10*time.Second)))); err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range []int64{20, 240} {
		start, end := last.Add(-time.Duration(n-1)*10*time.Second).UnixMilli(), last.UnixMilli()
		b.Run(fmt.Sprintf("flame graph of %d", n), func(b *testing.B) {
			for b.Loop() {
				answer, err := querier.SelectMergeStacktraces(b.Context(), connect.NewRequest(&querierv1.SelectMergeStacktracesRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: start, End: end}))
				if err != nil || answer.Msg.Flamegraph.Total != n*300*301/2 {
					b.Fatal(answer, err)
				}
			}
		})
		b.Run(fmt.Sprintf("pprof of %d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := querier.SelectMergeStacktraces(b.Context(), connect.NewRequest(&querierv1.SelectMergeStacktracesRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: start, End: end, Format: querierv1.ProfileFormat_PROFILE_FORMAT_PPROF})); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("time line of %d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := querier.SelectSeries(b.Context(), connect.NewRequest(&querierv1.SelectSeriesRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: start, End: end, Step: 15, GroupBy: []string{"version"}})); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
