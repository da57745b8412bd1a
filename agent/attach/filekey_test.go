package attach

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMappedKey compares what kernels before 6.6 are asked, where the answer does not depend on the kernel: off overlayfs.
func TestMappedKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := FileKey(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := mappedKey(f); err != nil || got != want {
		t.Errorf("key %q, %v; want %q, as fstat has it", got, err, want)
	}
}
