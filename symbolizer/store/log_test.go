package store_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// records reads a log's records from the start.
func records(t testing.TB, dir string) (out []string, broken int) {
	t.Helper()
	places := map[uint64]string{}
	log, broken, err := open(t, dir).Log("test", func(r []byte, place uint64) {
		out = append(out, string(r))
		places[place] = string(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range places {
		if got, err := log.Read(place); string(got) != want || err != nil {
			t.Fatalf("read %.20q, %v, want %.20q", got, err, want)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return out, broken
}

func TestLogSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for run := range 3 {
		log, _, err := open(t, dir).Log("test", func([]byte, uint64) {})
		if err != nil {
			t.Fatal(err)
		}
		batch := [][]byte{[]byte(fmt.Sprint("small ", run)), bytes.Repeat([]byte{byte(run)}, 5000)}
		places, err := log.Append(batch...)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range batch {
			want = append(want, string(b))
			if got, err := log.Read(places[i]); !bytes.Equal(got, b) || err != nil {
				t.Fatalf("read %.20q, %v", got, err)
			}
		}
		if _, err := log.Append([]byte("kept"), nil); err == nil {
			t.Fatal("an empty record was taken")
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := log.Read(places[0]); err == nil {
			t.Fatal("read from a closed log")
		}
	}
	if got, broken := records(t, dir); !reflect.DeepEqual(got, want) || broken != 0 {
		t.Fatalf("%d records, %d broken", len(got), broken)
	}
}

// Whatever a crash leaves of a segment, the records before are whole, and later ones go on.
func TestLogTornAnywhere(t *testing.T) {
	dir := t.TempDir()
	log, _, err := open(t, dir).Log("test", func([]byte, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append([]byte("one"), []byte("two"), []byte("three")); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "logs", "test", "00000000.log")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"one", "two", "three"}
	ends := []int{11, 22, 35}
	for size := range whole {
		if err := os.WriteFile(name, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < 3 && ends[n] <= size {
			n++
		}
		if got, broken := records(t, dir); strings.Join(got, " ") != strings.Join(all[:n], " ") || broken != 0 {
			t.Fatalf("of %d bytes: %q, %d broken", size, got, broken)
		}
	}
	for at := range whole { // a damaged byte costs one record, or, in a length, the rest of the segment
		damaged := append([]byte(nil), whole...)
		damaged[at] ^= 0x55
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _ := records(t, dir)
		for _, r := range got {
			if !strings.Contains("one two three", r) {
				t.Fatalf("byte %d damaged: record %q", at, r)
			}
		}
	}
	log, _, err = open(t, dir).Log("test", func([]byte, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append([]byte("after")); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if got, _ := records(t, dir); got[len(got)-1] != "after" {
		t.Fatalf("records %q", got)
	}
}

const writerEnv = "VRAMPROF_TEST_LOG_WRITER"

// TestLogWriter is the process that TestKilledWriter kills.
func TestLogWriter(t *testing.T) {
	dir := os.Getenv(writerEnv)
	if dir == "" {
		return
	}
	s := open(t, dir)
	log, _, err := s.Log("test", func([]byte, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		if _, err := log.Append([]byte(fmt.Sprint("record ", n)), bytes.Repeat([]byte("x"), n%3000+1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(build, "symbols", content(strings.Repeat("y", 10000))); err != nil {
			t.Fatal(err)
		}
		fmt.Println("acknowledged", n)
	}
}

func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	acknowledged := 0
	for kill := range 5 {
		child := exec.Command(os.Args[0], "-test.run=^TestLogWriter$")
		child.Env = append(os.Environ(), writerEnv+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(20+17*kill)*time.Millisecond, func() { _ = child.Process.Kill() })
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "acknowledged") {
				acknowledged++
			}
		}
		timer.Stop()
		if err := child.Wait(); err == nil {
			t.Fatal("the writer ended by itself")
		}
		got, broken := records(t, dir)
		if len(got) < 2*acknowledged || broken != 0 {
			t.Fatalf("%d records of %d batches that were acknowledged, %d broken", len(got), acknowledged, broken)
		}
		if acknowledged > 0 && len(read(t, open(t, dir))) != 10000 {
			t.Fatal("the file is not whole")
		}
	}
	if acknowledged == 0 {
		t.Fatal("the writers were killed before they wrote: nothing was tested")
	}
}

func FuzzLog(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x00\x00\x00\x00\x00one"))
	f.Fuzz(func(t *testing.T, segment []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "logs", "test"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "logs", "test", "00000000.log"), segment, 0o600); err != nil {
			t.Fatal(err)
		}
		records(t, dir)
		log, _, err := open(t, dir).Log("test", func([]byte, uint64) {})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		_, _ = log.Read(uint64(len(segment)) << 3)
	})
}
