package devserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vramprof/vramprof/devserver"
	"github.com/vramprof/vramprof/devserver/page"
	"github.com/vramprof/vramprof/devserver/page/pagetest"
)

const allocBytes = "gpu:gpu_alloc_bytes:bytes:gpu:bytes"

// serve starts a server over a directory, on a port that speaks HTTP/1.1 and HTTP/2 without TLS.
func serve(t testing.TB, dir string) (*devserver.Server, *httptest.Server) {
	t.Helper()
	s, err := devserver.New(devserver.Options{Dir: dir, Page: page.Handler()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, server
}

// http2 is a client that speaks HTTP/2 only.
func http2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols}}
}

// pprofOf is a gzipped profile of allocated bytes by stack, from the outermost function inwards.
func pprofOf(t *testing.T, moment time.Time, stacks map[string]int64) []byte {
	t.Helper()
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "gpu_alloc_bytes", Unit: "bytes"}},
		PeriodType: &profile.ValueType{Type: "gpu", Unit: "bytes"}, Period: 1, TimeNanos: moment.UnixNano(),
	}
	for path, value := range stacks {
		sample := &profile.Sample{Value: []int64{value}}
		for name := range strings.FieldsSeq(path) {
			id := uint64(len(p.Function)) + 1
			p.Function = append(p.Function, &profile.Function{ID: id, Name: name, Filename: "/srv/" + name + ".py"})
			p.Location = append(p.Location, &profile.Location{ID: id, Line: []profile.Line{{Function: p.Function[id-1], Line: 7}}})
			sample.Location = append([]*profile.Location{p.Location[id-1]}, sample.Location...)
		}
		p.Sample = append(p.Sample, sample)
	}
	var raw bytes.Buffer
	if err := p.Write(&raw); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

func seriesOf(version string, raw []byte) *pushv1.RawProfileSeries {
	return &pushv1.RawProfileSeries{
		Labels: []*typesv1.LabelPair{
			{Name: "__name__", Value: "gpu"}, {Name: "service_name", Value: "llm"}, {Name: "version", Value: version},
		},
		Samples: []*pushv1.RawSample{{RawProfile: raw}},
	}
}

func selection(selector string, moment time.Time) *querierv1.SelectMergeStacktracesRequest {
	return &querierv1.SelectMergeStacktracesRequest{
		ProfileTypeID: allocBytes, LabelSelector: selector,
		Start: moment.Add(-time.Minute).UnixMilli(), End: moment.Add(time.Minute).UnixMilli(),
	}
}

func TestEveryProtocol(t *testing.T) {
	for _, row := range []struct {
		name    string
		client  *http.Client
		options []connect.ClientOption
	}{
		{"connect over HTTP/1.1", &http.Client{}, nil},
		{"connect over HTTP/2", http2(), nil},
		{"connect, gzip", &http.Client{}, []connect.ClientOption{connect.WithSendGzip()}},
		{"JSON", &http.Client{}, []connect.ClientOption{connect.WithProtoJSON()}},
		{"gRPC", http2(), []connect.ClientOption{connect.WithGRPC()}},
		{"gRPC-Web", &http.Client{}, []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, server := serve(t, t.TempDir())
			defer row.client.CloseIdleConnections()
			now := time.Now()
			pusher := pushv1connect.NewPusherServiceClient(row.client, server.URL, row.options...)
			querier := querierv1connect.NewQuerierServiceClient(row.client, server.URL, row.options...)
			for version, stacks := range map[string]map[string]int64{
				"v1": {"main load": 100, "main cache": 10},
				"v2": {"main load": 100, "main cache": 70},
			} {
				request := &pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{seriesOf(version, pprofOf(t, now, stacks))}}
				if _, err := pusher.Push(t.Context(), connect.NewRequest(request)); err != nil {
					t.Fatal(err)
				}
			}
			answer, err := querier.Diff(t.Context(), connect.NewRequest(&querierv1.DiffRequest{
				Left: selection(`{version="v1"}`, now), Right: selection(`{version="v2"}`, now),
			}))
			if err != nil {
				t.Fatal(err)
			}
			graph := answer.Msg.Flamegraph
			if want := []int64{0, 10, 10, 0, 70, 70, 2, 0, 100, 100, 0, 100, 100, 3}; graph.LeftTicks != 110 || graph.RightTicks != 170 || !slices.Equal(graph.Levels[2].Values, want) {
				t.Errorf("the difference is %v", graph)
			}
			if _, err := querier.SelectMergeStacktraces(t.Context(), connect.NewRequest(selection("", now))); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("an empty selector: %v", err)
			}
			merged, err := querier.SelectMergeProfile(t.Context(), connect.NewRequest(&querierv1.SelectMergeProfileRequest{ //nolint:staticcheck // what profilecli and the page still call
				ProfileTypeID: allocBytes, LabelSelector: "{}", Start: now.Add(-time.Second).UnixMilli(), End: now.UnixMilli(),
			}))
			if err != nil {
				t.Fatal(err)
			}
			if p := merged.Msg; len(p.Sample) != 2 || len(p.Location) != 3 || p.Location[0].Line[0].Line != 7 || !slices.Contains(p.StringTable, "/srv/cache.py") {
				t.Errorf("the profile is %v", p)
			}
		})
	}
}

// By hand, as curl does it.
func TestJSONByHand(t *testing.T) {
	_, server := serve(t, t.TempDir())
	now := time.Now()
	post := func(method, body string) (int, map[string]any) {
		t.Helper()
		response, err := http.Post(server.URL+method, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var answer map[string]any
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, answer
	}
	raw := base64.StdEncoding.EncodeToString(pprofOf(t, now, map[string]int64{"main load": 1 << 60}))
	code, answer := post("/push.v1.PusherService/Push", `{"series":[{"labels":[{"name":"__name__","value":"gpu"},{"name":"service_name","value":"llm"}],"samples":[{"rawProfile":"`+raw+`"}]}]}`)
	if code != http.StatusOK {
		t.Fatalf("push: %d %v", code, answer)
	}
	query := fmt.Sprintf(`{"profileTypeID":%q,"labelSelector":"{service_name=\"llm\"}","start":"%d","end":"%d"}`, allocBytes, now.Add(-time.Second).UnixMilli(), now.UnixMilli())
	code, answer = post("/querier.v1.QuerierService/SelectMergeStacktraces", query)
	if graph, _ := answer["flamegraph"].(map[string]any); code != http.StatusOK || graph["total"] != "1152921504606846976" {
		t.Errorf("flame graph: %d %v", code, answer)
	}
	if code, answer = post("/querier.v1.QuerierService/SelectMergeStacktraces", "{}"); code != http.StatusBadRequest || answer["code"] != "invalid_argument" {
		t.Errorf("an empty query: %d %v", code, answer)
	}
	if code, answer = post("/querier.v1.QuerierService/SelectHeatmap", "{}"); code != http.StatusNotImplemented {
		t.Errorf("a call that is not known: %d %v", code, answer)
	}
}

func TestGoodSeriesOfABadPushAreKept(t *testing.T) {
	dir := t.TempDir()
	s, server := serve(t, dir)
	now := time.Now()
	good := func(version string) *pushv1.RawProfileSeries {
		return seriesOf(version, pprofOf(t, now, map[string]int64{"main": 7}))
	}
	_, err := pushv1connect.NewPusherServiceClient(http.DefaultClient, server.URL).Push(t.Context(), connect.NewRequest(&pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{
		good("v1"),
		seriesOf("old", pprofOf(t, now.Add(-2*time.Hour), map[string]int64{"main": 7})),
		seriesOf("broken", []byte("not a profile")),
		good("v2"),
	}}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("the error is %v, want that of the first bad series", err)
	}
	total := func(url string) int64 {
		t.Helper()
		answer, err := querierv1connect.NewQuerierServiceClient(http.DefaultClient, url).SelectMergeStacktraces(t.Context(), connect.NewRequest(selection("{}", now)))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Msg.Flamegraph.Total
	}
	if got := total(server.URL); got != 14 {
		t.Errorf("total %d, want 14", got)
	}
	metrics := get(t, server.URL+"/metrics", http.StatusOK)
	for _, want := range []string{
		"vramprof_devserver_profiles_kept_total 2\n",
		`vramprof_devserver_series_refused_total{reason="too_old"} 1` + "\n",
		`vramprof_devserver_series_refused_total{reason="undecodable"} 1` + "\n",
		`vramprof_devserver_series_refused_total{reason="storage"} 0` + "\n",
		`vramprof_devserver_request_duration_seconds_count{code="invalid_argument",procedure="/push.v1.PusherService/Push"} 1` + "\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if got := get(t, server.URL+"/ready", http.StatusOK); got != "ready\n" {
		t.Errorf("ready says %q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	get(t, server.URL+"/ready", http.StatusServiceUnavailable)
	_, err = pushv1connect.NewPusherServiceClient(http.DefaultClient, server.URL).Push(t.Context(), connect.NewRequest(&pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{good("v3")}}))
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a push to a closed server: %v", err)
	}
	_, again := serve(t, dir)
	if got := total(again.URL); got != 14 {
		t.Errorf("after a restart the total is %d, want 14", got)
	}
}

func TestHealthAndReflection(t *testing.T) {
	_, server := serve(t, t.TempDir())
	client := http2()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := grpcreflect.NewClient(client, server.URL, connect.WithGRPC()).NewStream(ctx)
	defer stream.Close()
	services, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pushv1connect.PusherServiceName, querierv1connect.QuerierServiceName} {
		if !slices.ContainsFunc(services, func(s protoreflect.FullName) bool { return string(s) == name }) {
			t.Errorf("reflection does not list %s", name)
		}
		response, err := http.Post(server.URL+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader(`{"service":"`+name+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(body), "SERVING") {
			t.Errorf("the health of %s: %s %v", name, body, err)
		}
	}
	if _, err := stream.FileContainingSymbol("querier.v1.QuerierService"); err != nil {
		t.Error(err)
	}
}

func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir)
	if second, err := devserver.New(devserver.Options{Dir: dir}); err == nil {
		second.Close()
		t.Error("two servers have one directory open")
	}
}

// The page, in a real browser, shows what was pushed.
func TestPageShowsWhatWasPushed(t *testing.T) {
	_, server := serve(t, t.TempDir())
	now := time.Now()
	pusher := pushv1connect.NewPusherServiceClient(http.DefaultClient, server.URL)
	for version, stacks := range map[string]map[string]int64{"v1": {"main load": 3 << 20}, "v2": {"main load": 3 << 20, "main cache": 2 << 20}} {
		series := seriesOf(version, pprofOf(t, now, stacks))
		if _, err := pusher.Push(t.Context(), connect.NewRequest(&pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{series}})); err != nil {
			t.Fatal(err)
		}
	}
	tab := pagetest.Open(t, pagetest.Chromium(t), server.URL+"/#service=llm")
	frames := tab.Frames()
	for _, want := range []string{"total, 8.00 MiB, 100 %", "load, 6.00 MiB, 75.0 %", "cache, 2.00 MiB, 25.0 %"} {
		if !slices.Contains(frames, want) {
			t.Errorf("no %q among %q", want, frames)
		}
	}
}

func get(t *testing.T, url string, code int) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != code {
		t.Errorf("%s: %d, want %d", url, response.StatusCode, code)
	}
	return string(body)
}
