package stack

// MaxFrames is how many frames of one stack Pyroscope keeps; of a deeper one it drops the innermost, which allocated
// (validation.max-profile-stacktrace-depth).
const MaxFrames = 1000

// Cut shortens a stack that is deeper than limit, which is at least 2, to limit frames: out of its middle, where
// recursion is, so that both the allocating frames and the roots stay. mark makes the frame that stands for the n frames
// cut. A stack that is not deeper is returned as it is.
func Cut[F any](frames []F, limit int, mark func(n int) F) []F {
	if len(frames) <= limit {
		return frames
	}
	inner := limit / 2
	outer := limit - inner - 1
	out := make([]F, 0, limit)
	out = append(out, frames[:inner]...)
	out = append(out, mark(len(frames)-inner-outer))
	return append(out, frames[len(frames)-outer:]...)
}
