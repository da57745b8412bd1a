package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, target string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, target, nil)
	for name := range header {
		request.Header.Set(name, header.Get(name))
	}
	recorder := httptest.NewRecorder()
	Handler().ServeHTTP(recorder, request)
	return recorder
}

func TestHandlerServesFilesWithTheirTypesAndLifetimes(t *testing.T) {
	index := get(t, "/", nil)
	asset := func(extension string) string {
		name := regexp.MustCompile(`assets/page-\w+\.` + extension).FindString(index.Body.String())
		if name == "" {
			t.Fatalf("index.html names no %s file:\n%s", extension, index.Body)
		}
		return "/" + name
	}
	for _, test := range []struct {
		target, contentType, cache string
		status                     int
	}{
		{"/", "text/html; charset=utf-8", "no-cache", http.StatusOK},
		{asset("js"), "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", http.StatusOK},
		{asset("css"), "text/css; charset=utf-8", "public, max-age=31536000, immutable", http.StatusOK},
		{"/assets/licenses.txt", "text/plain; charset=utf-8", "no-cache", http.StatusOK},
		{"/assets/missing.js", "text/plain; charset=utf-8", "", http.StatusNotFound},
		{"/assets/..%2fpage.go", "text/plain; charset=utf-8", "", http.StatusNotFound},
		{"/elsewhere", "text/plain; charset=utf-8", "", http.StatusNotFound},
	} {
		t.Run(test.target, func(t *testing.T) {
			answer := get(t, test.target, nil)
			if answer.Code != test.status {
				t.Fatalf("status %d, want %d", answer.Code, test.status)
			}
			if got := answer.Header().Get("Content-Type"); got != test.contentType {
				t.Errorf("Content-Type %q, want %q", got, test.contentType)
			}
			if got := answer.Header().Get("Cache-Control"); got != test.cache {
				t.Errorf("Cache-Control %q, want %q", got, test.cache)
			}
			if test.status != http.StatusOK {
				return
			}
			again := get(t, test.target, http.Header{"If-None-Match": {answer.Header().Get("ETag")}})
			if again.Code != http.StatusNotModified {
				t.Errorf("status %d for a file that has not changed, want %d", again.Code, http.StatusNotModified)
			}
		})
	}
}

func TestHandlerAllowsNothingFromElsewhere(t *testing.T) {
	answer := get(t, "/", nil)
	got := answer.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(got, want) {
			t.Errorf("policy %q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "unsafe") {
		t.Errorf("policy %q allows something unsafe", got)
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style|\son\w+=|https?://(?:www\.w3\.org)?`).FindString(strings.ReplaceAll(answer.Body.String(), "http://www.w3.org/2000/svg", "")); inline != "" {
		t.Errorf("index.html has %q", inline)
	}
}

func TestPageIsSmall(t *testing.T) {
	const limit = 300 << 10
	var size int64
	err := fs.WalkDir(os.DirFS("dist"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		size += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if size == 0 || size > limit {
		t.Errorf("dist has %d bytes, want some and at most %d", size, limit)
	}
}
