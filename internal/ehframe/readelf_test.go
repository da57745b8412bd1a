package ehframe_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/ehframe"
)

// TestAgainstReadelf compares every row with what binutils makes of the same section.
func TestAgainstReadelf(t *testing.T) {
	for _, path := range libraries(t) {
		t.Run(filepath.Base(path), func(t *testing.T) { compare(t, path) })
	}
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) { compare(t, build(t, b.compiler, b.flags...)) })
	}
}

// libraries are what every machine has, and every libpython of this one.
func libraries(t testing.TB) []string {
	t.Helper()
	var paths []string
	for _, name := range []string{"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6"} {
		out, err := exec.Command("gcc", "-print-file-name="+name).Output()
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.EvalSymlinks(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return append(append(paths, "/lib64/ld-linux-x86-64.so.2"), libpythons(t)...)
}

func libpythons(t testing.TB) []string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, pattern := range []string{home + "/.pyenv/versions/*/lib/libpython3.*.so.1.0", "/usr/lib/x86_64-linux-gnu/libpython3.*.so.1.0"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return paths
}

// rule is a line of readelf's tables.
type rule struct {
	start, end      uint64
	fde             string
	cfa, bp, sp, ra string
}

func compare(t *testing.T, path string) {
	table, _ := parse(t, path)
	rules, ends := interpreted(t, path)
	expressions := expressionsOf(t, path)
	if len(rules) < 20 {
		t.Fatalf("readelf has %d rules", len(rules))
	}
	errors, seen := 0, map[string]int{}
	for _, r := range rules {
		want := expected(r, expressions[r.fde])
		for _, at := range []uint64{r.start, r.end - 1} {
			row, _ := table.Find(at)
			got := show(row)
			if r.bp == "u" { // readelf says the same of an rbp that is not touched yet and of one that is lost
				got = strings.Replace(got, "bp lost", "bp same", 1)
			}
			if got != want {
				if errors++; errors < 20 {
					t.Errorf("%#x: %s, want %s (%+v, %v)", at, got, want, r, expressions[r.fde])
				}
			}
		}
		seen[kindOf(want)]++
	}
	for _, end := range ends {
		if row, _ := table.Find(end); row.Reason() != ehframe.NoFDE {
			t.Errorf("%#x, behind a function: %s", end, show(row))
		}
	}
	said := map[ehframe.Reason]int{}
	for i, r := range table.Rows {
		if i > 0 && r.PC <= table.Rows[i-1].PC {
			t.Errorf("row %d at %#x after %#x", i, r.PC, table.Rows[i-1].PC)
		}
		if reason := r.Reason(); reason > ehframe.NoFDE {
			said[reason]++
		}
	}
	if fmt.Sprint(said) != fmt.Sprint(table.Unsaid) {
		t.Errorf("counted %v, there are %v", table.Unsaid, said)
	}
	t.Logf("%d functions, %d rows; readelf: %d rules, %v; not said: %v", table.Functions, len(table.Rows), len(rules), seen, table.Unsaid)
}

// show gives a row in words.
func show(r ehframe.Row) string {
	bp := func(n int16) string {
		switch n {
		case ehframe.BPSame:
			return "bp same"
		case ehframe.BPUndefined:
			return "bp lost"
		case ehframe.BPAtBP:
			return "bp at bp"
		}
		return fmt.Sprintf("bp c%+d", n)
	}
	if offset, at, ok := r.Large(); ok {
		return fmt.Sprintf("rsp%+d, %s", offset, bp(at))
	}
	switch r.Kind() {
	case ehframe.End:
		return "end"
	case ehframe.SP:
		return fmt.Sprintf("rsp%+d, %s", r.CFA&^7, bp(r.BP))
	case ehframe.BP:
		return fmt.Sprintf("rbp%+d, %s", r.CFA&^7, bp(r.BP))
	case ehframe.PLT:
		return fmt.Sprintf("stub %d, %s", r.CFA>>3, bp(r.BP))
	case ehframe.DerefBP:
		return fmt.Sprintf("*rbp%+d, %s", int16(r.CFA&^7), bp(r.BP))
	case ehframe.DerefSP:
		return fmt.Sprintf("*rsp%+d, %s", int16(r.CFA&^7), bp(r.BP))
	case ehframe.Signal:
		return "signal"
	}
	return r.Reason().String()
}

func kindOf(shown string) string {
	return regexp.MustCompile(`[-+ ]?[0-9].*|,.*`).ReplaceAllString(shown, "")
}

var stub = regexp.MustCompile(`^DW_OP_breg7 \(rsp\): 8; DW_OP_breg16 \(rip\): 0; DW_OP_lit15; DW_OP_and; DW_OP_lit(\d+); DW_OP_ge; DW_OP_lit3; DW_OP_shl; DW_OP_plus$`)
var deref = regexp.MustCompile(`^DW_OP_breg[67] \((r[bs]p)\): (-?\d+); DW_OP_deref$`)

// expected gives a rule in the words of show.
func expected(r rule, e map[string]string) string {
	if e["cfa"] == "DW_OP_breg7 (rsp): 160; DW_OP_deref" && e["rip"] == "DW_OP_breg7 (rsp): 168" && e["rbp"] == "DW_OP_breg7 (rsp): 120" {
		return "signal" // struct rt_sigframe
	}
	if r.ra == "u" {
		return "end"
	}
	if r.ra != "c-8" || r.sp != "u" {
		return "return address moved"
	}
	bp := "bp " + r.bp
	switch {
	case r.bp == "u", r.bp == "s":
		bp = "bp same"
	case r.bp == "exp" && e["rbp"] == "DW_OP_breg6 (rbp): 0":
		bp = "bp at bp"
	case !strings.HasPrefix(r.bp, "c"):
		bp = "bp lost"
	}
	base, offset := r.cfa, 0
	if i := strings.IndexAny(r.cfa, "+-"); i > 0 {
		base = r.cfa[:i]
		offset, _ = strconv.Atoi(r.cfa[i:])
	}
	switch {
	case r.cfa == "exp":
		if m := stub.FindStringSubmatch(e["cfa"]); m != nil {
			return "stub " + m[1] + ", " + bp
		}
		if m := deref.FindStringSubmatch(e["cfa"]); m != nil {
			n, _ := strconv.Atoi(m[2])
			if n%8 == 0 {
				return fmt.Sprintf("*%s%+d, %s", m[1], n, bp)
			}
		}
		return "DWARF expression"
	case base != "rsp" && base != "rbp":
		return "CFA by another register"
	case offset < 0 || offset%8 != 0 || base == "rbp" && offset >= 1<<16:
		return "large offset"
	}
	return fmt.Sprintf("%s%+d, %s", base, offset, bp)
}

var (
	entry    = regexp.MustCompile(`^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ (?:CIE|FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+))`)
	register = regexp.MustCompile(` \(r\w+\)`)
)

// interpreted reads readelf's tables, and the ends of functions behind which no other begins.
func interpreted(t *testing.T, path string) (rules []rule, ends []uint64) {
	t.Helper()
	type columns struct{ cfa, bp, sp, ra int }
	var at columns
	var current rule
	initial := map[string]rule{} // of CIEs: the rules of functions that readelf shows no table for
	cie := ""
	starts, stops := map[uint64]bool{}, []uint64{}
	finish := func() {
		if current.fde != "" && current.ra == "" {
			r := initial[cie]
			r.start, r.end, r.fde = current.start, current.end, current.fde
			rules = append(rules, r)
		}
		current = rule{}
	}
	readelf(t, path, "frames-interp", func(line string) {
		if m := entry.FindStringSubmatch(line); m != nil {
			finish()
			if m[2] == "" {
				cie = m[1]
				initial[cie] = rule{cfa: "exp", bp: "u", sp: "u", ra: "exp"}
				return
			}
			cie = m[2]
			current = rule{fde: m[1], start: hex(t, m[3]), end: hex(t, m[4])}
			starts[current.start], stops = true, append(stops, current.end)
			return
		}
		fields := strings.Fields(register.ReplaceAllString(line, ""))
		if len(fields) < 3 {
			return
		}
		if fields[0] == "LOC" {
			at = columns{slices.Index(fields, "CFA"), slices.Index(fields, "rbp"), slices.Index(fields, "rsp"), slices.Index(fields, "ra")}
			return
		}
		if at.cfa < 0 || len(fields[0]) != 16 || len(fields) <= at.ra {
			return
		}
		r := rule{start: hex(t, fields[0]), end: current.end, fde: current.fde, cfa: fields[at.cfa], ra: fields[at.ra], bp: "u", sp: "u"}
		if at.bp > 0 {
			r.bp = fields[at.bp]
		}
		if at.sp > 0 {
			r.sp = fields[at.sp]
		}
		if current.fde == "" {
			initial[cie] = r
			return
		}
		current.ra = r.ra
		if n := len(rules); n > 0 && rules[n-1].fde == r.fde {
			if rules[n-1].start == r.start { // the later line for an address counts
				rules = rules[:n-1]
			} else {
				rules[n-1].end = r.start
			}
		}
		if r.start < r.end {
			rules = append(rules, r)
		}
	})
	finish()
	for _, s := range stops {
		if !starts[s] {
			ends = append(ends, s)
		}
	}
	return rules, ends
}

var expression = regexp.MustCompile(`^  DW_CFA_(?:def_cfa_expression|expression: r\d+ \((r\w+)\)) \((.*)\)$`)

// expressionsOf gives the DWARF expressions of each FDE, by "cfa" or register.
func expressionsOf(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	fde := ""
	readelf(t, path, "frames", func(line string) {
		if m := entry.FindStringSubmatch(line); m != nil {
			fde = m[1]
		} else if m := expression.FindStringSubmatch(line); m != nil {
			if found[fde] == nil {
				found[fde] = map[string]string{}
			}
			if m[1] == "" {
				m[1] = "cfa"
			}
			found[fde][m[1]] = m[2]
		}
	})
	return found
}

func readelf(t *testing.T, path, dump string, line func(string)) {
	t.Helper()
	c := exec.Command("readelf", "-W", "--debug-dump="+dump+",no-follow-links", path)
	c.Env = append(os.Environ(), "LC_ALL=C", "DEBUGINFOD_URLS=")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(out)
	inSection := false
	for in.Scan() {
		if text := in.Text(); strings.HasPrefix(text, "Contents of the ") {
			inSection = strings.Contains(text, " .eh_frame section") && !strings.Contains(text, "linked file")
		} else if inSection {
			line(text)
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
}

func hex(t *testing.T, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
