/* A run of the benchmark: a loop over the driver at the bottom of a chosen number of frames. */
#pragma once
struct run {
	long calls;   /* how often the driver is called to allocate */
	int batch;    /* 0: free after each allocation; 1: free at the end, outside the time */
	int depth;    /* out: native frames of the stack at the driver's first instruction, the driver's own included */
	double ns;    /* out: the time of all calls that are timed */
};
typedef void *level(struct run *);
/* The function with n frames from itself down to the one that calls the driver; 0 if n is not in 1 to 96. */
level *bench_levels(int n);
/* Runs at the bottom of so many native frames in all; -1 if the caller is deeper already. */
int bench_at_depth(int depth, struct run *);
