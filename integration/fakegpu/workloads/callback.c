/* An extension that calls back into Python: C above and below a Python function. */
__attribute__((noinline)) long call_back(long (*function)(long), long argument)
{
	volatile char frame[72];
	frame[0] = 1;
	return function(argument) + (frame[0] & 0);
}
