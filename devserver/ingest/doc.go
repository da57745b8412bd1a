// Package ingest decides what a pushed profile becomes, by the rules of a real
// Pyroscope server, so that what the development server takes or refuses a
// cluster's server takes or refuses too, with the same code. The rules were
// measured on a server of August 2026 (after v2.2.1) with default limits.
//
// What it does not do: the rate limit of 4 MB/s over time, relabelling, and the
// rewriting of names that look like Go's.
package ingest
