package symbolizer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1/symbolizerv1connect"
	"github.com/vramprof/vramprof/internal/codedigest"
	"github.com/vramprof/vramprof/internal/elfobj"
	"github.com/vramprof/vramprof/symbolizer"
)

type client = symbolizerv1connect.SymbolizerServiceClient

// start serves a folder as the command does, and gives the address.
func start(t testing.TB, o symbolizer.Options) (*symbolizer.Service, string) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	service, err := symbolizer.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(service.Handler())
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return service, server.URL
}

// http2 speaks HTTP/2 without TLS.
func http2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: (&net.Dialer{}).DialContext}}
}

func dial(url string) client { return symbolizerv1connect.NewSymbolizerServiceClient(http2(), url) }

// program is a C++ program with its truth: addresses with the names that they have.
type program struct {
	object *symbolizerv1.Object
	file   []byte // reduced
	truth  map[uint64]string
}

func compile(t testing.TB, flags ...string) program {
	t.Helper()
	dir := t.TempDir()
	source, path := filepath.Join(dir, "in.cc"), filepath.Join(dir, "trainer")
	err := os.WriteFile(source, []byte(`
namespace model { struct Layer { template <typename T> __attribute__((noinline)) T forward(T x) { return x * 2; } }; }
extern "C" __attribute__((noinline)) int c_entry(int x) { return model::Layer().forward<int>(x); }
int main() { return c_entry(0); }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	output(t, "g++", append([]string{"-o", path, source}, flags...)...)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfobj.Open(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := f.Identity()
	if err != nil {
		t.Fatal(err)
	}
	var reduced bytes.Buffer
	if err := elfobj.Reduce(&reduced, bytes.NewReader(whole), int64(len(whole))); err != nil {
		t.Fatal(err)
	}
	p := program{object: &symbolizerv1.Object{BuildId: id, Name: "trainer"}, file: reduced.Bytes(), truth: map[uint64]string{}}
	for _, line := range strings.Split(output(t, "nm", path), "\n") {
		var at uint64
		var kind, name string
		if n, _ := fmt.Sscanf(line, "%x %s %s", &at, &kind, &name); n == 3 {
			switch name {
			case "c_entry", "main":
				p.truth[at] = name
			case "_ZN5model5Layer7forwardIiEET_S2_":
				p.truth[at] = "model::Layer::forward<int>"
			}
		}
	}
	if len(p.truth) != 3 {
		t.Fatalf("the program's functions: %v", p.truth)
	}
	return p
}

func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// upload sends a file in pieces.
func upload(ctx context.Context, c client, object *symbolizerv1.Object, file []byte) (*symbolizerv1.UploadObjectResponse, error) {
	stream := c.UploadObject(ctx)
	message := &symbolizerv1.UploadObjectRequest{Object: object}
	for first := true; first || len(file) > 0; first = false {
		n := min(len(file), 4000)
		message.Data, file = file[:n], file[n:]
		if err := stream.Send(message); err != nil {
			break // CloseAndReceive tells why
		}
		message = &symbolizerv1.UploadObjectRequest{}
	}
	response, err := stream.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// frame is a frame of a real traceback: its code object, and where it was.
type frame struct {
	symbolizerv1.PythonCode
	instruction uint32
	line        int32
}

const raising = `
import json, sys
source = """
class Trainer:
    def step(self, batch):
        return [self.loss(
            b,
            batch) for b in batch]

    def loss(self,
             b, batch):
        x = (1 +
             b / 0)
def train():
    t = Trainer()
    for i in range(3):
        t.step(
            [i,
             i])
train()
"""
try:
    exec(compile(source, "/srv/train\u00e4.py", "exec"), {})
except ZeroDivisionError as e:
    frames, tb = [], e.__traceback__.tb_next
    while tb:
        c = tb.tb_frame.f_code
        frames.append({"minor": sys.version_info[1], "filename": c.co_filename, "qualname": getattr(c, "co_qualname", c.co_name),
            "name": c.co_name, "first": c.co_firstlineno, "table": list(c.co_linetable if sys.version_info >= (3, 10) else c.co_lnotab),
            "lasti": tb.tb_lasti, "line": tb.tb_lineno})
        tb = tb.tb_next
    print(json.dumps(frames))
`

func traceback(t testing.TB) (out []*frame) {
	t.Helper()
	var frames []struct {
		Minor                    uint32
		Filename, Qualname, Name string
		First, Line              int32
		Table                    []int
		Lasti                    uint32
	}
	if err := json.Unmarshal([]byte(output(t, "python3", "-c", raising)), &frames); err != nil {
		t.Fatal(err)
	}
	if len(frames) < 4 {
		t.Fatalf("%d frames", len(frames))
	}
	for _, f := range frames {
		table := make([]byte, len(f.Table))
		for i, b := range f.Table {
			table[i] = byte(b)
		}
		x := &frame{instruction: f.Lasti, line: f.Line}
		x.MinorVersion, x.Filename, x.Qualname, x.Name, x.FirstLine, x.LineTable = f.Minor, f.Filename, f.Qualname, f.Name, f.First, table
		out = append(out, x)
	}
	return out
}

func (f *frame) digest() []byte {
	d := codedigest.Digest(int(f.MinorVersion), f.Filename, f.Qualname, f.Name, f.FirstLine, f.LineTable)
	return d[:]
}

// request asks for every function of a program and every frame of a traceback.
func request(p program, frames []*frame) (*symbolizerv1.SymbolizeRequest, []string) {
	r := &symbolizerv1.SymbolizeRequest{Objects: []*symbolizerv1.Object{p.object}}
	var want []string
	for at, name := range p.truth {
		r.Native = append(r.Native, &symbolizerv1.NativeLocation{Address: at + 1})
		want = append(want, name)
	}
	for i, f := range frames {
		r.CodeDigests = append(r.CodeDigests, f.digest())
		r.Python = append(r.Python, &symbolizerv1.PythonLocation{Code: uint32(i), Instruction: f.instruction})
		want = append(want, fmt.Sprintf("%s %s:%d from %d", f.Qualname, f.Filename, f.line, f.FirstLine))
	}
	return r, want
}

// names prints an answer as request does what is wanted.
func names(r *symbolizerv1.SymbolizeResponse) (out []string) {
	for _, l := range r.GetNative() {
		if len(l.GetLines()) == 1 {
			out = append(out, l.Lines[0].Function)
		} else {
			out = append(out, l.GetStatus().String())
		}
	}
	for _, l := range r.GetPython() {
		if len(l.GetLines()) == 1 {
			line := l.Lines[0]
			out = append(out, fmt.Sprintf("%s %s:%d from %d", line.Function, line.File, line.Line, line.StartLine))
		} else {
			out = append(out, l.GetStatus().String())
		}
	}
	return out
}

// await polls what no event tells of.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for ", what)
		}
	}
}

func ask(t testing.TB, c client, r *symbolizerv1.SymbolizeRequest) []string {
	t.Helper()
	answer, err := c.Symbolize(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	return names(answer.Msg)
}

// fillService uploads a program and a traceback.
func fillService(t testing.TB, c client, p program, frames []*frame) {
	t.Helper()
	if r, err := upload(t.Context(), c, p.object, p.file); err != nil || r.AlreadyPresent || r.Symbols < 3 {
		t.Fatalf("upload: %v, %v", r, err)
	}
	var codes []*symbolizerv1.PythonCode
	for _, f := range frames {
		codes = append(codes, &f.PythonCode)
	}
	if r, err := c.UploadCode(t.Context(), connect.NewRequest(&symbolizerv1.UploadCodeRequest{Codes: codes})); err != nil || int(r.Msg.Stored) != len(frames) {
		t.Fatalf("upload code: %v, %v", r, err)
	}
}

func get(t testing.TB, url, contentType, body string) (int, string) {
	t.Helper()
	r, err := http.Post(url, contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}
