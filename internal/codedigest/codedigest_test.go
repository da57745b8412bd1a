package codedigest_test

import (
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/codedigest"
)

// The same definition, written in Python from the comment in the proto.
const oracle = `
import hashlib, struct, sys
h = hashlib.sha256()
for f in (b"13", "/srv/träin.py".encode(), "Model.forward.<locals>.<lambda>".encode(), b"<lambda>", b"-7", bytes(range(256))):
    h.update(struct.pack("<I", len(f)) + f)
print(h.hexdigest())
`

func TestDigestEqualsDefinition(t *testing.T) {
	out, err := exec.Command("python3", "-c", oracle).Output()
	if err != nil {
		t.Fatal(err)
	}
	table := make([]byte, 256)
	for i := range table {
		table[i] = byte(i)
	}
	got := codedigest.Digest(13, "/srv/träin.py", "Model.forward.<locals>.<lambda>", "<lambda>", -7, table)
	if want := strings.TrimSpace(string(out)); hex.EncodeToString(got[:]) != want {
		t.Fatalf("digest %x, want %s", got, want)
	}
}

func TestDigestSeparatesFields(t *testing.T) {
	a := codedigest.Digest(11, "ab", "c", "c", 1, nil)
	b := codedigest.Digest(11, "a", "bc", "c", 1, nil)
	if a == b {
		t.Fatal("two code objects whose fields only run together have one digest")
	}
}
