// Package cpython knows how CPython's interpreters are laid out in memory: where a thread keeps its frames, what a frame
// and a code object look like, and which interpreter a file holds, by the file's content and never by its name.
//
// Up to 3.12 the offsets are a table, one row per minor version: they are fixed within one. From 3.13 on they are read
// out of the file, from the debug offsets with which _PyRuntime begins. An interpreter that is not known to the byte is
// refused with its version; nothing is guessed across a minor version.
//
// All of it holds for 64-bit little-endian builds with the GIL.
package cpython
