// Package profile makes pprof of stacks whose frames have names: the profiles that a Pyroscope server takes, and the one
// file that `vramprof run -o` writes.
//
// What the server would refuse, cut or drop in silence cannot be built here: a profile has no negative value, no mapping
// without functions, no text that is not UTF-8, and is split before it has too many samples or bytes. The same stacks
// give the same bytes, in whatever order they come.
package profile
