package agent

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/agent/gpuapi"
)

// TestNumbersAreThePrograms compares the numbers that rows are handed over in with the text of the kernel half, which
// says them a second time.
func TestNumbersAreThePrograms(t *testing.T) {
	numbers := map[string]int{}
	for _, file := range []string{"bpf/c/size.h", "bpf/c/vramprof.bpf.c"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, enum := range regexp.MustCompile(`(?m)^enum\s*\w*\s*\{([^}]*)\}`).FindAllStringSubmatch(string(text), -1) {
			next := 0
			for _, entry := range strings.Split(enum[1], ",") {
				name, value, given := strings.Cut(strings.TrimSpace(entry), "=")
				if given {
					if next, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
						t.Fatalf("%s: %q: %v", file, entry, err)
					}
				}
				numbers[strings.TrimSpace(name)] = next
				next++
			}
		}
	}
	want := map[string]int{
		"ROLE_ALLOCATE": int(gpuapi.RoleAllocate), "ROLE_FREE": int(gpuapi.RoleFree),
		"SIZE_NONE": int(gpuapi.SizeNone), "SIZE_ARGUMENT": int(gpuapi.SizeArgument), "SIZE_ARGUMENT_32": int(gpuapi.SizeArgument32),
		"SIZE_PITCH": int(gpuapi.SizePitch), "SIZE_PITCH_32": int(gpuapi.SizePitch32), "SIZE_ARRAY": int(gpuapi.SizeArray),
		"SIZE_ARRAY_3D": int(gpuapi.SizeArray3D), "SIZE_MIPMAPPED": int(gpuapi.SizeMipmapped),
		"POINTER_NONE": int(gpuapi.PointerNone), "POINTER_OUT": int(gpuapi.PointerOut), "POINTER_OUT_32": int(gpuapi.PointerOut32),
		"POINTER_ARGUMENT": int(gpuapi.PointerArgument), "POINTER_ARGUMENT_32": int(gpuapi.PointerArgument32),
	}
	for name, n := range want {
		if got, ok := numbers[name]; !ok || got != n {
			t.Errorf("%s is %d (found: %t) in the programs and %d in gpuapi", name, got, ok, n)
		}
	}
	for name := range numbers {
		if _, ok := want[name]; !ok {
			t.Errorf("the programs know %s and gpuapi does not", name)
		}
	}
}

// TestClassesFit: the kernel half masks a class to index what found no room.
func TestClassesFit(t *testing.T) {
	header, err := os.ReadFile("bpf/c/layout.h")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`#define CLASSES (\d+)`).FindSubmatch(header)
	if m == nil {
		t.Fatal("bpf/c/layout.h has no CLASSES")
	}
	room, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range gpuapi.Classes() {
		if int(c) >= room || room&(room-1) != 0 {
			t.Errorf("class %s is number %d of %d", c, c, room)
		}
	}
}
