// Package fakegpu builds a fake libcuda.so.1 and programs that allocate on it, and reads back the truth about what they
// did: the ledger, in which the library notes every call with its arguments, its result and the bytes concerned.
//
// The library exports every memory function of the CUDA driver API as the real one exports it, down to the bytes of the
// stubs, so whatever works on it without knowing it is fake works on the real one too. c/fakegpu.h says what it models
// and which environment variables set it up. The sums of Truth are taken from what the library itself computed, never
// from agent/gpuapi, so that the two check each other.
package fakegpu
