package objects

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

const (
	// maxMangled is the longest name that is demangled, in bytes. Those of real libraries reach some ten thousand; the
	// demangler's time grows with the length.
	maxMangled = 16 << 10
	// maxFunction is the longest demangled name with template arguments, in bytes. A longer one is shown without, as
	// nobody can read it.
	maxFunction = 1 << 10
	// maxShown is where a name is cut that is long in any case.
	maxShown = 4 << 10
	// lengthPower bounds the demangler's output to 2^14 bytes, so that a short name cannot unfold without end.
	lengthPower = 14
)

// function gives the name of a function for a person to read: demangled (Itanium C++, Rust v0 and legacy), without
// parameters, the compiler's suffixes and symbol versions. What cannot be demangled stays as it is, so no name is lost.
func function(raw string) string {
	bare := withoutSuffixes(raw)
	shown := bare
	if len(bare) <= maxMangled {
		options := []demangle.Option{demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(lengthPower)}
		name, err := demangle.ToString(bare, options...)
		if err == nil && len(name) > maxFunction {
			name, err = demangle.ToString(bare, append(options, demangle.NoTemplateParams)...)
		}
		if err == nil && name != "" {
			shown = name
		}
	}
	return valid(shown)
}

// valid makes of a name what a protobuf string can carry.
func valid(name string) string {
	if len(name) > maxShown {
		name = name[:maxShown] + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

// suffixes are those by which compilers tell parts and copies of a function apart (GCC: cold, part, isra, constprop,
// lto_priv, localalias; LLVM: llvm, specialized; both: clone).
var suffixes = [...]string{".cold", ".part", ".isra", ".constprop", ".lto_priv", ".localalias", ".llvm", ".specialized", ".clone"}

func withoutSuffixes(raw string) string {
	if at := strings.IndexByte(raw, '@'); at > 0 { // the version, in .symtab
		raw = raw[:at]
	}
	for _, s := range suffixes {
		if at := strings.Index(raw, s); at > 0 && (at+len(s) == len(raw) || raw[at+len(s)] == '.') {
			raw = raw[:at]
		}
	}
	return raw
}
