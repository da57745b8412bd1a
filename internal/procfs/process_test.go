package procfs_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procfs"
)

const statTail = " S 17 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 98765 100 200 18446744073709551615 94000000000000 94000000001000 140737000000000 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 1 2 3 4 5 6 7 0\n"

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"python3", "", "a b", ") S 1 2 3", "((", "x\ny", "\xff\xfe"} {
		got, err := procfs.ParseStat([]byte("4242 (" + comm + ")" + statTail))
		want := procfs.Stat{PID: 4242, Comm: comm, State: 'S', PPID: 17, StartTime: 98765, StartStack: 140737000000000}
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v", comm, got, err)
		}
	}
	for _, bad := range []string{"", "1", "1 (x", "1 (x) S 1", "x (x)" + statTail, "1 (x)" + strings.Replace(statTail, "98765", "-1", 1)} {
		if got, err := procfs.ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// A process of this test, whose name, arguments and environment are known.
func TestOfAProcess(t *testing.T) {
	c := exec.Command("/bin/cat")
	c.Args = []string{"c)a t", "-", "--", "-"}
	c.Env = []string{"A=1", "EMPTY=", "WITH=a=b\nc", "not an assignment", "=x"}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }() // it is killed
	defer in.Close()
	if _, err := in.Write([]byte("x")); err != nil { // once it answers it is what it will be
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	stat, err := procfs.ParseStat(read("stat"))
	if err != nil || stat.PID != uint32(c.Process.Pid) || stat.PPID != uint32(os.Getpid()) || stat.Comm != "cat" {
		t.Errorf("stat %+v, %v", stat, err)
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		t.Fatal(err)
	}
	if now := uint64(up.Nano() / 1e7); stat.StartTime > now || stat.StartTime+100*60 < now {
		t.Errorf("started at tick %d, now is %d", stat.StartTime, now)
	}
	inStack := false
	if err := procfs.Maps(strings.NewReader(string(read("maps"))), func(m procfs.Mapping) bool {
		inStack = inStack || m.Path == "[stack]" && m.Start <= stat.StartStack && stat.StartStack < m.End
		return true
	}); err != nil || !inStack {
		t.Errorf("%#x is not in the stack, %v", stat.StartStack, err)
	}
	if got := procfs.Cmdline(read("cmdline")); !slices.Equal(got, c.Args) {
		t.Errorf("cmdline %q", got)
	}
	if got, want := procfs.Environ(read("environ")), map[string]string{"A": "1", "EMPTY": "", "WITH": "a=b\nc"}; !maps.Equal(got, want) {
		t.Errorf("environ %q", got)
	}
	if got := procfs.NSPids(read("status")); len(got) == 0 || got[0] != uint32(c.Process.Pid) {
		t.Errorf("NSpid %v", got)
	}
	if got := procfs.Cgroups(read("cgroup")); len(got) == 0 {
		t.Errorf("no cgroups in %q", read("cgroup"))
	}
}

func TestNSPids(t *testing.T) {
	for text, want := range map[string][]uint32{
		"Name:\tx\nPid:\t7\nNSpid:\t7\t3\t1\nNSpgid:\t7\n": {7, 3, 1},
		"NSpid:\t7": {7}, "NSpid:\t7 x\n": nil, "Pid:\t7\n": nil, "": nil,
	} {
		if got := procfs.NSPids([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestCmdline(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "\x00": nil, "a\x00": {"a"}, "a\x00\x00b\x00": {"a", "", "b"}, "nginx: worker process\x00\x00\x00\x00": {"nginx: worker process"},
	} {
		if got := procfs.Cmdline([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestEnviron(t *testing.T) {
	if got, want := procfs.Environ([]byte("A=1\x00B\x00A=2\x00=3\x00C=")), map[string]string{"A": "1", "C": ""}; !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestCgroups(t *testing.T) {
	text := "12:cpu,cpuacct:/kubepods/pod1/abc\n1:name=systemd:/../x:y (deleted)\n0::/\nbroken\n3:memory:relative\n"
	want := []procfs.Cgroup{
		{Controllers: []string{"cpu", "cpuacct"}, Path: "/kubepods/pod1/abc"},
		{Controllers: []string{"name=systemd"}, Path: "/../x:y"},
		{Path: "/"},
	}
	if got := procfs.Cgroups([]byte(text)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func FuzzProcess(f *testing.F) {
	for _, name := range []string{"stat", "status", "cmdline", "environ", "cgroup"} {
		b, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := procfs.ParseStat(data); err == nil && !strings.HasPrefix(strings.TrimLeft(string(data), "0"), strings.TrimLeft(strconv.Itoa(int(s.PID)), "0")) {
			t.Errorf("PID %d of %q", s.PID, data)
		}
		procfs.NSPids(data)
		procfs.Cmdline(data)
		procfs.Environ(data)
		procfs.Cgroups(data)
	})
}
