// Package page is what a browser sees of `vramprof serve`: services, profile types, a time line, a flame graph, and the
// difference of two selections. It is a static page that calls the query API of the server it came from.
//
// The sources are in src/; dist/ is made from them, byte for byte, by `go generate` (npm, see package.json) and committed.
// The flame graph is d3-flame-graph (Apache-2.0) and the time line uPlot (MIT): both are kept up, and together with the page
// they weigh less than 200 kB, where Grafana's own component brings 5 MB and React.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"time"
)

//go:generate npm ci --silent --no-audit --no-fund
//go:generate npm run --silent build

//go:embed dist
var dist embed.FS

// contentTypes of the page's files: the machine's own MIME table might know them by other names.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
}

// policy lets the page load its own files and call its own server, and nothing else: no other host, no inline script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at / and its files at /assets/, and answers 404 to everything else. The page calls
// querier.v1.QuerierService relative to its own address, so it also works behind a proxy that adds a prefix.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, "index.html", "no-cache")
	})
	mux.HandleFunc("GET /assets/{name}", func(w http.ResponseWriter, r *http.Request) {
		lifetime := "public, max-age=31536000, immutable" // the name carries a hash of the content
		if path.Ext(r.PathValue("name")) == ".txt" {
			lifetime = "no-cache"
		}
		serve(w, r, r.PathValue("name"), lifetime)
	})
	return mux
}

func serve(w http.ResponseWriter, r *http.Request, name, lifetime string) {
	content, err := dist.ReadFile(path.Join("dist", path.Base(name)))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(content)
	header := w.Header()
	header.Set("Cache-Control", lifetime)
	header.Set("Content-Security-Policy", policy)
	header.Set("Content-Type", contentTypes[path.Ext(name)])
	header.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}
