package push

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// Options say where to push and how. All but URL have defaults.
type Options struct {
	// URL is the server's, as https://pyroscope.example:4040; a path in it stays before the service's.
	URL string
	// User and Password are sent as basic auth, Token as a bearer token: for a gateway, the server has no auth of its own.
	User, Password string
	Token          string
	// Tenant is sent as X-Scope-OrgID.
	Tenant string
	// Headers are sent besides.
	Headers map[string]string
	// HTTP sends the requests; one of its own if nil.
	HTTP connect.HTTPClient
	// Timeout bounds one attempt; 10 s if 0. A real server takes half a second.
	Timeout time.Duration
	// Concurrency is how many attempts are made at a time; 32 if 0.
	Concurrency int
	// QueueBytes bounds the memory of what waits, which is compressed; 64 MiB if 0.
	QueueBytes int64
	// MaxBytes bounds a profile and its labels in bytes, not compressed; 1.95 MB if 0, which is under the 2 MB that the
	// server takes at once.
	MaxBytes int
	// MaxAge is how old a profile may be that the server takes; 1 h if 0.
	MaxAge     time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the time; time.Now if nil.
	Now func() time.Time
	// Random gives a number in [0, 1), to spread tries; math/rand's if nil.
	Random func() float64
}

func (o Options) withDefaults() (Options, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return o, fmt.Errorf("pyroscope URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return o, fmt.Errorf("pyroscope URL %q: give it as http://host:port or https://host:port", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return o, fmt.Errorf("pyroscope URL %q: give it without query and fragment", u.Redacted())
	case o.Token != "" && (o.User != "" || o.Password != "" || u.User != nil):
		return o, errors.New("pyroscope credentials: give a user and password, or a token, not both")
	}
	if u.User != nil && o.User == "" {
		o.User = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	u.User = nil // or it would be in every error
	o.URL = strings.TrimSuffix(u.String(), "/")
	if o.Concurrency == 0 {
		o.Concurrency = 32
	}
	if o.HTTP == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = o.Concurrency
		o.HTTP = &http.Client{Transport: t}
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 64 << 20
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1_950_000
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Hour
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return o, nil
}
