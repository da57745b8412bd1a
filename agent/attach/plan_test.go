package attach_test

import (
	"bytes"
	"debug/elf"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/agent/attach"
)

func TestPlanChoosesInstruction(t *testing.T) {
	f := open(t, library(t))
	tests := []struct {
		symbol      string
		offset      uint64
		instruction string // prefix
		why         string // part
	}{
		{"stub", 10, "je", "first emulated instruction; skipped: cmp"},
		{"endbr_jump", 0, "endbr64", "single-stepped"},
		{"endbr_push", 4, "push", "skipped: endbr64"},
		{"push_first", 0, "push", "emulated"},
		{"push_r12", 0, "push", "emulated"},
		{"thunk", 0, "jmp", "emulated"},
		{"nop5_only", 0, "nop", "5-byte nop"},
		{"nop5_push", 5, "push", "skipped: nop"},
		{"load_scratch", 8, "jne", "skipped: mov"},
		{"lea_argument", 0, "mov", "single-stepped"},
		{"sub_stack", 0, "sub", "single-stepped"},
		{"store_first", 0, "mov", "single-stepped"},
		{"callee_saved", 0, "xchg", "single-stepped"},
		{"loop_head", 0, "mov", "a branch may enter"},
	}
	for _, tt := range tests {
		t.Run(tt.symbol, func(t *testing.T) {
			s := plan(t, f, tt.symbol).Sites[0]
			if s.ProbeOffset != tt.offset || !strings.HasPrefix(s.Instruction, tt.instruction) || !strings.Contains(s.Why, tt.why) {
				t.Errorf("got %+d %q %q, want %+d %q %q", s.ProbeOffset, s.Instruction, s.Why, tt.offset, tt.instruction, tt.why)
			}
		})
	}
}

func TestPlanRefusals(t *testing.T) {
	f := open(t, library(t))
	wanted := []string{"imported", "guard", "indirect", "cuMemAllocNew_v9", "stub", "push_first"}
	p, err := attach.NewPlan(f, wanted)
	if err != nil {
		t.Fatal(err)
	}
	want := []attach.Refusal{
		{"imported", attach.ReasonUndefined}, // B08
		{"guard", attach.ReasonNotFunction},
		{"indirect", attach.ReasonNotFunction},
		{"cuMemAllocNew_v9", attach.ReasonAbsent},
	}
	if !slices.Equal(p.Refused, want) {
		t.Errorf("refused %v, want %v", p.Refused, want)
	}
	if len(p.Sites) != 2 {
		t.Errorf("%d sites, want 2: a refusal must not cost the others: %v", len(p.Sites), p.Sites)
	}
	for name, exported := range map[string]bool{"stub": true, "loop_head": true, "imported": false, "guard": false} {
		if slices.Contains(p.Exported, name) != exported {
			t.Errorf("exported %s: %v, want %v", name, !exported, exported)
		}
	}
}

func TestPlanNamesOfOneAddressShareASite(t *testing.T) {
	f := open(t, library(t))
	p := plan(t, f, "stub_alias", "push_first", "stub")
	if len(p.Sites) != 2 {
		t.Fatalf("%d sites, want 2: %v", len(p.Sites), p.Sites)
	}
	for _, s := range p.Sites {
		if s.Symbols[0] != "push_first" && !slices.Equal(s.Symbols, []string{"stub_alias", "stub"}) {
			t.Errorf("names %v, want all names of the address in the order asked for", s.Symbols)
		}
	}
}

func TestPlanRefusesForeignFiles(t *testing.T) {
	good, err := os.ReadFile(library(t))
	if err != nil {
		t.Fatal(err)
	}
	patched := func(offset int, value byte) []byte {
		b := bytes.Clone(good)
		b[offset] = value
		return b
	}
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"not ELF", []byte("#!/bin/sh\n"), "read ELF"},
		{"other machine", patched(18, byte(elf.EM_PPC64)), "EM_PPC64"}, // e_machine
		{"big endian", patched(5, byte(elf.ELFDATA2MSB)), ""},          // EI_DATA
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := attach.NewPlan(bytes.NewReader(tt.bytes), []string{"stub"}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	p, err := attach.NewPlan(bytes.NewReader(patched(18, byte(elf.EM_AARCH64))), []string{"stub"})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Sites[0]; s.ProbeOffset != 0 || !strings.Contains(s.Why, "x86-64 only") {
		t.Errorf("AArch64: %+v, want the first instruction", s)
	}
}

// FuzzNewPlan changes bytes of a real library: a plan or an error, and never a site outside the file.
func FuzzNewPlan(f *testing.F) {
	good, err := os.ReadFile(library(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := attach.NewPlan(bytes.NewReader(b), []string{"stub", "endbr_push", "loop_head", "imported", "guard"})
		if err != nil {
			return
		}
		for _, s := range p.Sites {
			if len(s.Symbols) == 0 || s.ProbeOffset > 64 {
				t.Errorf("site %+v", s)
			}
		}
	})
}
