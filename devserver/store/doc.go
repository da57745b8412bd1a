// Package store keeps profiles on local disk: append-only segment files and an
// index in memory that Open rebuilds from them. It is the whole database of the
// development server, so it favours few moving parts over speed at scale.
//
// A profile that Append has accepted is with the kernel, so it survives a kill of
// the process; a segment is synced to the disk when it is full and at Close, so
// a loss of power can cost what was appended since. A segment that was torn
// gives every record that is whole and is not appended to again.
// Old profiles leave a whole segment at a time, by age and by total size.
package store
