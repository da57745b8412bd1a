package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1/symbolizerv1connect"
	"github.com/vramprof/vramprof/internal/codedigest"
)

// asCommand makes the test binary the command, so that a test can start, stop and kill it as a process.
const asCommand = "VRAMPROF_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

type process struct {
	*exec.Cmd
	url string
	log *bytes.Buffer // after the process ended
	end chan error
}

// start runs the command until it says where it serves.
func start(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], "--listen=127.0.0.1:0", "--data-dir="+dir), log: &bytes.Buffer{}, end: make(chan error, 1)}
	p.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	serving := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.log.WriteString(lines.Text() + "\n")
			if m := regexp.MustCompile(`msg=serving address=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
				serving <- "http://" + m[1]
			}
		}
		p.end <- p.Wait()
	}()
	select {
	case p.url = <-serving:
	case err := <-p.end:
		t.Fatalf("it ended: %v\n%s", err, p.log)
	}
	return p
}

func (p *process) client() symbolizerv1connect.SymbolizerServiceClient {
	return symbolizerv1connect.NewSymbolizerServiceClient(http.DefaultClient, p.url)
}

var code = &symbolizerv1.PythonCode{MinorVersion: 11, Filename: "a.py", Qualname: "A.f", Name: "f", FirstLine: 3, LineTable: []byte{0x80, 0}}

func digest() []byte {
	d := codedigest.Digest(11, "a.py", "A.f", "f", 3, []byte{0x80, 0})
	return d[:]
}

func uploadCode(t *testing.T, p *process) {
	t.Helper()
	if _, err := p.client().UploadCode(t.Context(), connect.NewRequest(&symbolizerv1.UploadCodeRequest{Codes: []*symbolizerv1.PythonCode{code}})); err != nil {
		t.Fatal(err)
	}
}

func function(t *testing.T, p *process) string {
	t.Helper()
	r, err := p.client().Symbolize(t.Context(), connect.NewRequest(&symbolizerv1.SymbolizeRequest{
		CodeDigests: [][]byte{digest()}, Python: []*symbolizerv1.PythonLocation{{}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg.GetPython()[0].GetLines()[0].GetFunction()
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	uploadCode(t, p)
	if got := function(t, p); got != "A.f" {
		t.Fatalf("function %q", got)
	}
	r, err := http.Get(p.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(r.Body)
	if err := r.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`vramprof_symbolizer_locations_total{kind="python",status="resolved"} 1`,
		`vramprof_symbolizer_locations_total{kind="native",status="missing"} 0`,
		`vramprof_symbolizer_uploads_total{kind="code",result="stored"} 1`,
		`vramprof_symbolizer_uploads_total{kind="object",result="refused"} 0`,
		`vramprof_symbolizer_code_objects 1`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}

	// SIGTERM lets an upload that is under way end, and refuses new connections.
	stream := p.client().UploadObject(t.Context())
	if err := stream.Send(&symbolizerv1.UploadObjectRequest{Object: &symbolizerv1.Object{BuildId: "gnu:00"}, Data: []byte("no ELF")}); err != nil {
		t.Fatal(err)
	}
	awaitSpool(t, dir)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			break
		}
		_ = c.Close()
	}
	if _, err := stream.CloseAndReceive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("the upload was not finished: %v", err)
	}
	if err := <-p.end; err != nil {
		t.Errorf("it ended with %v\n%s", err, p.log)
	}
}

// awaitSpool waits until an upload has arrived at the store.
func awaitSpool(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		spools, err := filepath.Glob(filepath.Join(dir, "temporary", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spools {
			if info, err := os.Stat(s); err == nil && info.Size() > 0 {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no upload arrived")
		}
	}
}

// Killed in the middle of an upload, it comes back with everything that it had acknowledged, and nothing broken.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	uploadCode(t, p)
	stream := p.client().UploadObject(t.Context())
	if err := stream.Send(&symbolizerv1.UploadObjectRequest{Object: &symbolizerv1.Object{BuildId: "gnu:00"}, Data: []byte("\x7fELF")}); err != nil {
		t.Fatal(err)
	}
	awaitSpool(t, dir)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-p.end; err == nil {
		t.Fatal("the killed service ended by itself")
	}
	if _, err := stream.CloseAndReceive(); err == nil {
		t.Fatal("the killed service answered")
	}
	p = start(t, dir)
	if got := function(t, p); got != "A.f" {
		t.Errorf("function %q", got)
	}
	missing, err := p.client().FindMissing(t.Context(), connect.NewRequest(&symbolizerv1.FindMissingRequest{
		Objects: []*symbolizerv1.Object{{BuildId: "gnu:00"}}, CodeDigests: [][]byte{digest()},
	}))
	if err != nil || len(missing.Msg.BuildIds) != 1 || len(missing.Msg.CodeDigests) != 0 {
		t.Errorf("missing %v, %v", missing, err)
	}
}

func TestErrorsNameTheNextStep(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, says string
		args       []string
	}{
		{"port in use", "choose another with --listen", []string{"--listen=" + taken.Addr().String()}},
		{"no address", "--listen", []string{"--listen=nonsense"}},
		{"not a folder", "--data-dir", []string{"--listen=127.0.0.1:0", "--data-dir=" + file}},
		{"log level", "debug, info", []string{"--log-level=loud"}},
		{"log format", "text or json", []string{"--log-format=xml"}},
		{"an argument", "unknown command", []string{"extra"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := command()
			c.SetArgs(test.args)
			c.SetErr(io.Discard)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := c.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	c := command()
	c.SetArgs([]string{"version"})
	c.SetOut(&out)
	if err := c.Execute(); err != nil || !strings.HasPrefix(out.String(), "vramprof-symbolizer ") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
