// Package ingest decides what a pushed profile becomes, by the rules of a real
// Pyroscope server, so that what the development server takes or refuses a
// cluster's server takes or refuses too, with the same code. The rules were
// measured on a server of August 2026 (after v2.2.1) with default limits.
//
// It is stricter with a profile whose parts do not fit together: what refers to a
// location, function, mapping or string that is not there is malformed, where the
// server says nothing and loses it. It is kinder to stacks without symbols: a
// location without a function is named by object and address, and a sample without
// a location stays in the total, where the server's flame graph has neither.
//
// What it does not do: the rate limit of 4 MB/s over time, relabelling, and the
// rewriting of names that look like Go's.
package ingest
