// Package push delivers profiles to a Pyroscope server by push.v1: concurrently, again when that may help and never when it
// cannot, from a queue in memory that is bounded in bytes. Every profile that it takes ends as sent or as dropped for a
// stated reason, and is counted as that.
package push
