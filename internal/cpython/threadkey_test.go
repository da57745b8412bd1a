package cpython

import (
	"os/exec"
	"strconv"
	"testing"
)

func TestThreadKeysAreWhereTheCLibraryKeepsThem(t *testing.T) {
	out, err := exec.Command("/usr/bin/python3", "-I", "testdata/threadkeys.py", strconv.Itoa(ThreadKeys)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
