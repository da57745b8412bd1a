package push_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/agent/push"
)

func TestBadOptions(t *testing.T) {
	for _, row := range []struct {
		options push.Options
		want    string
	}{
		{push.Options{}, "give it as http"},
		{push.Options{URL: "pyroscope:4040"}, "give it as http"},
		{push.Options{URL: "http://h?x=1"}, "without query"},
		{push.Options{URL: "http://%zz"}, "pyroscope URL"},
		{push.Options{URL: "http://h", User: "u", Token: "t"}, "not both"},
	} {
		_, err := push.New(row.options)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %v, want %q", row.options.URL, err, row.want)
		}
	}
}

func TestPasswordIsNotShown(t *testing.T) {
	var log bytes.Buffer
	s := &server{script: func(int, *http.Request) response { return response{status: 400} }}
	h := httptest.NewServer(s)
	defer h.Close()
	c, err := push.New(push.Options{URL: strings.Replace(h.URL, "http://", "http://user:hunter2@", 1), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Push(push.Profile{Time: time.Now(), Pprof: profileOf(t, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := http.Request{Header: s.requests[0].header}
	if _, password, _ := r.BasicAuth(); password != "hunter2" {
		t.Error("the password in the URL is not sent")
	}
	if !strings.Contains(log.String(), "profile dropped") || strings.Contains(log.String(), "hunter2") {
		t.Errorf("log: %s", &log)
	}
}
