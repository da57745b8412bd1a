// Compiled without unwind tables.
__attribute__((noinline)) int silent(int (*call)(int), int x)
{
	volatile int v[8] = { x };
	return call(v[0]) + v[0];
}
