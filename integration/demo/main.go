// Command demo shows the main job on this machine: `vramprof serve` with two deployments of a training loop in Python and
// of an inference server in C++, on the fake driver, or on the real one where the machine has a GPU. It prints who allocated
// most and where the page is. On a terminal it goes on serving until it is interrupted; otherwise it ends.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

const interval = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "vramprof-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	driver, err := fakegpu.Build(ctx, filepath.Join(dir, "driver"))
	if err != nil {
		return err
	}
	environment := driver.Env("")
	where := "the fake driver"
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		environment, where = nil, "this machine's GPU"
	}
	began := time.Now()
	url, stopServer, err := startServer(ctx, dir, environment)
	if err != nil {
		return err
	}
	defer stopServer()
	for _, w := range workloads(driver) {
		stop, err := w.start(ctx, environment)
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Printf("Two versions of a training loop and of an inference server run on %s.\n", where)
	if err := waitForData(ctx, url); err != nil {
		return err
	}
	if err := printTop(ctx, url); err != nil {
		return err
	}
	fmt.Printf("\nThe page, after %.0f s: %s\n", time.Since(began).Seconds(), url)
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil {
		return nil // nobody is there to look
	}
	fmt.Println("It is served until Ctrl-C.")
	<-ctx.Done()
	return nil
}

// startServer starts `vramprof serve` and waits until it says where its page is.
func startServer(ctx context.Context, dir string, environment []string) (url string, stop func(), err error) {
	binary := filepath.Join("bin", "vramprof")
	listen := "127.0.0.1:4040"
	for {
		c := exec.CommandContext(ctx, binary, "serve", "--listen", listen, "--data-dir", filepath.Join(dir, "data"), "--interval", interval.String())
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.Env = append(os.Environ(), environment...)
		stderr, err := c.StderrPipe()
		if err != nil {
			return "", nil, err
		}
		if err := c.Start(); err != nil {
			return "", nil, fmt.Errorf("start %s: %w: run `make build` first", binary, err)
		}
		var said []string
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if m := regexp.MustCompile(`page=(http://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
				go func() {
					for lines.Scan() { // keep its log flowing
					}
				}()
				return m[1], func() {
					_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
					_ = c.Wait()
				}, nil
			}
			said = append(said, lines.Text())
		}
		_ = c.Wait()
		if listen != "127.0.0.1:0" && strings.Contains(strings.Join(said, "\n"), "another program has the port") {
			listen = "127.0.0.1:0"
			continue
		}
		return "", nil, fmt.Errorf("vramprof serve ended:\n%s", strings.Join(said, "\n"))
	}
}

type workload struct {
	service, version string
	command          []string
}

func workloads(d fakegpu.Driver) []workload {
	var out []workload
	for _, version := range []string{"v1", "v2"} {
		out = append(out,
			workload{"trainer", version, []string{"python3", d.Train, "--steps", "0", "--sleep", "0.2", "--version", version}},
			workload{"chat", version, []string{d.Inference, "--version", version}})
	}
	return out
}

func (w workload) start(ctx context.Context, environment []string) (stop func(), err error) {
	c := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	c.Env = append(append(os.Environ(), environment...), "OTEL_SERVICE_NAME="+w.service, "OTEL_RESOURCE_ATTRIBUTES=service.version="+w.version)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", w.command[0], err)
	}
	return func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	}, nil
}

const allocated = "gpu:gpu_alloc_bytes:bytes:gpu:bytes"

// waitForData waits until all four deployments have been seen through one whole interval.
func waitForData(ctx context.Context, url string) error {
	client := querierv1connect.NewQuerierServiceClient(http.DefaultClient, url)
	deadline := time.Now().Add(50 * time.Second)
	seen := 0
	for time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		now := time.Now().UnixMilli()
		r, err := client.Series(ctx, connect.NewRequest(&querierv1.SeriesRequest{Start: now - 60_000, End: now, LabelNames: []string{"service_name", "version"}}))
		if err != nil {
			return fmt.Errorf("ask the server: %w", err)
		}
		if seen = len(r.Msg.GetLabelsSet()); seen >= 4 {
			return nil
		}
	}
	return fmt.Errorf("after 50 s only %d of the 4 deployments have profiles", seen)
}

// printTop prints the stacks that allocated most.
func printTop(ctx context.Context, url string) error {
	client := querierv1connect.NewQuerierServiceClient(http.DefaultClient, url)
	now := time.Now().UnixMilli()
	for _, d := range []struct{ service, version string }{{"trainer", "v1"}, {"trainer", "v2"}, {"chat", "v1"}, {"chat", "v2"}} {
		r, err := client.SelectMergeStacktraces(ctx, connect.NewRequest(&querierv1.SelectMergeStacktracesRequest{
			ProfileTypeID: allocated, LabelSelector: fmt.Sprintf("{service_name=%q, version=%q}", d.service, d.version), Start: now - 60_000, End: now,
			Format: querierv1.ProfileFormat_PROFILE_FORMAT_PPROF,
		}))
		if err != nil {
			return fmt.Errorf("ask for the profile: %w", err)
		}
		stacks, total := topStacks(r.Msg.GetPprof().GetProfile())
		fmt.Printf("\n%s %s allocated %s. Its top stacks, the allocating function first:\n", d.service, d.version, mebibytes(total))
		t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
		for _, s := range stacks[:min(3, len(stacks))] {
			fmt.Fprintf(t, "%s\t %s\n", mebibytes(s.bytes), s.text)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
