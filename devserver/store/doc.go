// Package store keeps profiles on local disk: append-only segment files and an
// index in memory that Open rebuilds from them. It is the whole database of the
// development server, so it favours few moving parts over speed at scale.
//
// A profile that Append has accepted survives a restart and a kill of the
// process. A segment begins with a magic line and goes on with records, each its
// length, its CRC-32C and its payload; a record torn by a crash is cut off when
// the directory is next opened, and everything before it is kept. Old profiles
// leave a whole segment at a time, by age and by total size.
package store
