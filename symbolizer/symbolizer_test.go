package symbolizer_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/encoding/protojson"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1/symbolizerv1connect"
	"github.com/vramprof/vramprof/symbolizer"
)

const procedures = "/" + symbolizerv1connect.SymbolizerServiceName + "/"

// An agent's whole conversation, by each protocol on the one port.
func TestConversation(t *testing.T) {
	p, frames := compile(t, "-O1"), traceback(t)
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "connect with JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
		"compressed": {connect.WithSendGzip()},
	} {
		t.Run(name, func(t *testing.T) {
			service, url := start(t, symbolizer.Options{Dir: t.TempDir()})
			c := symbolizerv1connect.NewSymbolizerServiceClient(http2(), url, options...)
			r, want := request(p, frames)
			for _, got := range ask(t, c, r) {
				if got != "STATUS_MISSING" {
					t.Fatalf("before the upload: %s", got)
				}
			}
			find := connect.NewRequest(&symbolizerv1.FindMissingRequest{Objects: append(r.Objects, &symbolizerv1.Object{BuildId: "gnu:nonsense"}), CodeDigests: append(r.CodeDigests, []byte("short"))})
			missing, err := c.FindMissing(t.Context(), find)
			if err != nil || fmt.Sprint(missing.Msg.BuildIds) != fmt.Sprint([]string{p.object.BuildId}) || !reflect.DeepEqual(missing.Msg.CodeDigests, r.CodeDigests) {
				t.Fatalf("missing %v, %v", missing, err)
			}
			fillService(t, c, p, frames)
			missing, err = c.FindMissing(t.Context(), find)
			if err != nil || len(missing.Msg.BuildIds) > 0 || len(missing.Msg.CodeDigests) > 0 {
				t.Fatalf("missing after the upload: %v, %v", missing, err)
			}
			if got := ask(t, c, r); !reflect.DeepEqual(got, want) {
				t.Fatalf("answered\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if again, err := upload(t.Context(), c, p.object, p.file); err != nil || !again.AlreadyPresent {
				t.Fatalf("second upload: %v, %v", again, err)
			}
			s := service.Statistics()
			if s.Codes != len(frames) || s.UploadedBytes != 2*uint64(len(p.file)) || s.CacheMisses != 3 {
				t.Errorf("statistics %+v", s)
			}
		})
	}
}

func TestJSONOverHTTP(t *testing.T) {
	p, frames := compile(t), traceback(t)
	_, url := start(t, symbolizer.Options{Dir: t.TempDir()})
	fillService(t, dial(url), p, frames)
	r, want := request(p, frames)
	body, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := get(t, url+procedures+"Symbolize", "application/json", string(body))
	out := &symbolizerv1.SymbolizeResponse{}
	if err := protojson.Unmarshal([]byte(answer), out); status != 200 || err != nil || !reflect.DeepEqual(names(out), want) {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	if !strings.Contains(answer, `"systemName":"_ZN5model5Layer7forwardIiEET_S2_"`) {
		t.Errorf("no raw name in %s", answer)
	}
	if status, answer := get(t, url+procedures+"Symbolize", "application/json", `{"native":1}`); status != 400 {
		t.Errorf("a malformed request: status %d, %s", status, answer)
	}
}

// A client of another implementation: grpc-go's own, with its health and reflection protocols.
func TestGRPC(t *testing.T) {
	p, frames := compile(t), traceback(t)
	_, url := start(t, symbolizer.Options{Dir: t.TempDir()})
	connection, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	stream, err := connection.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, procedures+"UploadObject")
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(p.file); at += 1000 {
		m := &symbolizerv1.UploadObjectRequest{Data: p.file[at:min(len(p.file), at+1000)]}
		if at == 0 {
			m.Object = p.object
		}
		if err := stream.SendMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	uploaded := &symbolizerv1.UploadObjectResponse{}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(uploaded); err != nil || uploaded.Symbols < 3 {
		t.Fatalf("%v, %v", uploaded, err)
	}
	codes := &symbolizerv1.UploadCodeRequest{}
	for _, f := range frames {
		codes.Codes = append(codes.Codes, &f.PythonCode)
	}
	if err := connection.Invoke(t.Context(), procedures+"UploadCode", codes, &symbolizerv1.UploadCodeResponse{}); err != nil {
		t.Fatal(err)
	}
	r, want := request(p, frames)
	answer := &symbolizerv1.SymbolizeResponse{}
	if err := connection.Invoke(t.Context(), procedures+"Symbolize", r, answer); err != nil || !reflect.DeepEqual(names(answer), want) {
		t.Fatalf("%v, %v", names(answer), err)
	}
	health, err := grpc_health_v1.NewHealthClient(connection).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: symbolizerv1connect.SymbolizerServiceName})
	if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health %v, %v", health, err)
	}
	v1, err := grpc_reflection_v1.NewServerReflectionClient(connection).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := v1.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if list, err := v1.Recv(); err != nil || !strings.Contains(list.String(), symbolizerv1connect.SymbolizerServiceName) {
		t.Errorf("reflection v1: %v, %v", list, err)
	}
	alpha, err := grpc_reflection_v1alpha.NewServerReflectionClient(connection).ServerReflectionInfo(t.Context()) //nolint:staticcheck // what older clients speak
	if err != nil {
		t.Fatal(err)
	}
	symbol := &grpc_reflection_v1alpha.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbolizerv1connect.SymbolizerServiceName} //nolint:staticcheck // the same
	if err := alpha.Send(&grpc_reflection_v1alpha.ServerReflectionRequest{MessageRequest: symbol}); err != nil {                                     //nolint:staticcheck // the same
		t.Fatal(err)
	}
	if file, err := alpha.Recv(); err != nil || file.GetErrorResponse() != nil { //nolint:staticcheck // the same
		t.Errorf("reflection v1alpha: %v, %v", file, err)
	}
}

func TestRestartKeepsAll(t *testing.T) {
	p, bare, frames := compile(t), compile(t, "-Wl,--build-id=none"), traceback(t)
	if !strings.HasPrefix(bare.object.BuildId, "sha256:") {
		t.Fatal(bare.object.BuildId)
	}
	dir := t.TempDir()
	t.Run("fill", func(t *testing.T) {
		_, url := start(t, symbolizer.Options{Dir: dir})
		fillService(t, dial(url), p, frames)
		fillService(t, dial(url), bare, nil)
	})
	_, url := start(t, symbolizer.Options{Dir: dir})
	for _, p := range []program{p, bare} {
		r, want := request(p, frames)
		if got := ask(t, dial(url), r); !reflect.DeepEqual(got, want) {
			t.Fatalf("after a restart: %v, want %v", got, want)
		}
	}
}

// A client that goes away in the middle of an upload leaves nothing behind, and another can do it over.
func TestBrokenUpload(t *testing.T) {
	p := compile(t)
	dir := t.TempDir()
	service, url := start(t, symbolizer.Options{Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	stream := dial(url).UploadObject(ctx)
	if err := stream.Send(&symbolizerv1.UploadObjectRequest{Object: p.object, Data: p.file[:len(p.file)/2]}); err != nil {
		t.Fatal(err)
	}
	await(t, "the first half to arrive", func() bool {
		spools, err := filepath.Glob(filepath.Join(dir, "temporary", "*"))
		return err == nil && len(spools) == 1
	})
	cancel()
	await(t, "the server to see that the client is gone", func() bool {
		for _, u := range service.Statistics().Uploads {
			if u.Kind == "object" && u.Result == "aborted" {
				return u.Count == 1
			}
		}
		return false
	})
	if _, err := stream.CloseAndReceive(); connect.CodeOf(err) != connect.CodeCanceled { // only now, as it ends the stream in good order
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "temporary")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	r, _ := request(p, nil)
	if got := ask(t, dial(url), r); got[0] != "STATUS_MISSING" {
		t.Errorf("half an upload answers %v", got)
	}
	if _, err := upload(t.Context(), dial(url), p.object, p.file[:len(p.file)/2]); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("half a file: %v", err)
	}
	fillService(t, dial(url), p, nil)
}

// An upload that nobody needs is answered well by every protocol, however large, and leaves nothing behind.
func TestKnownUpload(t *testing.T) {
	p, dir := compile(t, "-static"), t.TempDir()
	_, url := start(t, symbolizer.Options{Dir: dir})
	fillService(t, dial(url), p, nil)
	large := append(p.file, make([]byte, 16<<20)...)
	for name, c := range map[string]client{
		"HTTP/2": dial(url), "HTTP/1.1": symbolizerv1connect.NewSymbolizerServiceClient(http.DefaultClient, url),
		"gRPC": symbolizerv1connect.NewSymbolizerServiceClient(http2(), url, connect.WithGRPC()),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := upload(t.Context(), c, p.object, large); err != nil || !r.AlreadyPresent {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	if left, err := os.ReadDir(filepath.Join(dir, "temporary")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestRefusals(t *testing.T) {
	p := compile(t)
	_, url := start(t, symbolizer.Options{Dir: t.TempDir(), MaxObject: int64(len(p.file)), MaxLocations: 10, MaxMessage: 1 << 20})
	c := dial(url)
	send := func(messages ...*symbolizerv1.UploadObjectRequest) func() error {
		return func() error {
			stream := c.UploadObject(t.Context())
			for _, m := range messages {
				if stream.Send(m) != nil {
					break
				}
			}
			_, err := stream.CloseAndReceive()
			return err
		}
	}
	for _, test := range []struct {
		name string
		call func() error
		code connect.Code
		says string
	}{
		{"too many locations", func() error {
			_, err := c.Symbolize(t.Context(), connect.NewRequest(&symbolizerv1.SymbolizeRequest{Native: make([]*symbolizerv1.NativeLocation, 11)}))
			return err
		}, connect.CodeInvalidArgument, "at most 10 at once"},
		{"too many names", func() error {
			_, err := c.FindMissing(t.Context(), connect.NewRequest(&symbolizerv1.FindMissingRequest{CodeDigests: make([][]byte, 11)}))
			return err
		}, connect.CodeInvalidArgument, "at most 10 at once"},
		{"too large a message", func() error {
			_, err := c.UploadCode(t.Context(), connect.NewRequest(&symbolizerv1.UploadCodeRequest{Codes: []*symbolizerv1.PythonCode{{MinorVersion: 11, LineTable: make([]byte, 2<<20)}}}))
			return err
		}, connect.CodeResourceExhausted, "larger"},
		{"no version", func() error {
			_, err := c.UploadCode(t.Context(), connect.NewRequest(&symbolizerv1.UploadCodeRequest{Codes: []*symbolizerv1.PythonCode{{Qualname: "f"}}}))
			return err
		}, connect.CodeInvalidArgument, "minor_version"},
		{"no upload message", send(), connect.CodeInvalidArgument, "no message"},
		{"no object", send(&symbolizerv1.UploadObjectRequest{Data: p.file}), connect.CodeInvalidArgument, "build ID"},
		{"a path", send(&symbolizerv1.UploadObjectRequest{Object: &symbolizerv1.Object{BuildId: "gnu:../../etc"}, Data: p.file}), connect.CodeInvalidArgument, "build ID"},
		{"two objects", send(&symbolizerv1.UploadObjectRequest{Object: p.object}, &symbolizerv1.UploadObjectRequest{Object: p.object}), connect.CodeInvalidArgument, "second object"},
		{"too large an object", send(&symbolizerv1.UploadObjectRequest{Object: p.object, Data: append([]byte{0}, p.file...)}), connect.CodeInvalidArgument, "limit"},
		{"another build's file", send(&symbolizerv1.UploadObjectRequest{Object: &symbolizerv1.Object{BuildId: "gnu:00"}, Data: p.file}), connect.CodeInvalidArgument, "not gnu:00"},
		{"no file", send(&symbolizerv1.UploadObjectRequest{Object: p.object}), connect.CodeInvalidArgument, "ELF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.call(); connect.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// One wrong location of a batch costs none of the others.
func TestStatuses(t *testing.T) {
	p, frames := compile(t), traceback(t)
	_, url := start(t, symbolizer.Options{Dir: t.TempDir()})
	fillService(t, dial(url), p, frames)
	r, want := request(p, frames[:1])
	native := len(r.Native)
	r.Objects = append(r.Objects, &symbolizerv1.Object{BuildId: "gnu:00"}, &symbolizerv1.Object{BuildId: "nonsense"})
	r.CodeDigests = append(r.CodeDigests, make([]byte, 32), []byte("short"))
	r.Native = append(r.Native, []*symbolizerv1.NativeLocation{{Address: 1}, {Object: 1, Address: 1}, {Object: 2, Address: 1}, {Object: 3, Address: 1}, {Object: 1 << 31}}...)
	r.Python = append(r.Python, []*symbolizerv1.PythonLocation{{Code: 1}, {Code: 2}, {Code: 3}}...)
	all := append(append(append([]string(nil), want[:native]...),
		"STATUS_NO_SYMBOL", "STATUS_MISSING", "STATUS_INVALID", "STATUS_INVALID", "STATUS_INVALID"),
		append(want[native:], "STATUS_MISSING", "STATUS_INVALID", "STATUS_INVALID")...)
	if got := ask(t, dial(url), r); !reflect.DeepEqual(got, all) {
		t.Errorf("answered\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(all, "\n"))
	}
}

// A disk that is full is told to the agent, and costs nothing that was stored.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatalf("mount a small disk (run the tests as root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("full", func(t *testing.T) {
		p, large, frames := compile(t), compile(t, "-static"), traceback(t)
		_, url := start(t, symbolizer.Options{Dir: dir})
		c := dial(url)
		fillService(t, c, p, frames)
		if _, err := upload(t.Context(), c, large.object, large.file); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("upload: %v", err)
		}
		_, err := c.UploadCode(t.Context(), connect.NewRequest(&symbolizerv1.UploadCodeRequest{Codes: []*symbolizerv1.PythonCode{{MinorVersion: 11, LineTable: make([]byte, 1<<20)}}}))
		if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("upload code: %v", err)
		}
		r, want := request(p, frames)
		if got := ask(t, c, r); !reflect.DeepEqual(got, want) {
			t.Errorf("answered %v, want %v", got, want)
		}
	})
}

// Mutated files: each is taken or refused, and what was good still answers.
func TestHostileUploads(t *testing.T) {
	p := compile(t)
	_, url := start(t, symbolizer.Options{Dir: t.TempDir()})
	c := dial(url)
	fillService(t, c, p, nil)
	bare := compile(t, "-Wl,--build-id=0x5555555555555555")
	random := rand.New(rand.NewPCG(3, 3))
	taken, refused := 0, 0
	for range 500 {
		b := bytes.Clone(bare.file)
		for range 1 + random.IntN(6) {
			at := random.IntN(len(b))
			if random.IntN(2) == 0 { // headers decide most
				at = random.IntN(2)*(len(b)-64*30) + random.IntN(64*30)
			}
			b[at] = [...]byte{0, 1, 0x7f, 0xff, byte(random.Uint32())}[random.IntN(5)]
		}
		id := fmt.Sprintf("gnu:%016x", random.Uint64())
		b = bytes.ReplaceAll(b, bytes.Repeat([]byte{0x55}, 8), mustHex(id[4:]))
		switch _, err := upload(t.Context(), c, &symbolizerv1.Object{BuildId: id}, b); connect.CodeOf(err) {
		case connect.CodeInvalidArgument:
			refused++
		default:
			if err != nil {
				t.Fatalf("%v", err)
			}
			taken++
			r := &symbolizerv1.SymbolizeRequest{Objects: []*symbolizerv1.Object{{BuildId: id}}}
			for at := range uint64(64) {
				r.Native = append(r.Native, &symbolizerv1.NativeLocation{Address: at << 7})
			}
			ask(t, c, r)
		}
	}
	if taken == 0 || refused == 0 {
		t.Errorf("%d taken, %d refused: the mutations try too little", taken, refused)
	}
	r, want := request(p, nil)
	if got := ask(t, c, r); !reflect.DeepEqual(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

func mustHex(s string) (b []byte) {
	if _, err := fmt.Sscanf(s, "%x", &b); err != nil {
		panic(err)
	}
	return b
}
