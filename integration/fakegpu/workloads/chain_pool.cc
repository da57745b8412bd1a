// The C++ part of the chain, for names that need demangling.
extern "C" {
#include "chain.h"
long inner_begin(struct request *);
long pool_begin(struct request *);
}

namespace chain {

template <typename T> class Pool {
public:
	FRAME virtual long take(request *r, unsigned long count);
	virtual ~Pool() = default;
};

template <typename T> FRAME long Pool<T>::take(request *r, unsigned long count)
{
	volatile char frame[56];
	frame[0] = static_cast<char>(count * sizeof(T));
	long n = inner_begin(r);
	return n + frame[0];
}

class Arena : public Pool<double> {
public:
	FRAME long reserve(request *r);
};

FRAME long Arena::reserve(request *r)
{
	auto through = [this, r](unsigned long count) __attribute__((noinline, noclone)) {
		volatile char frame[8];
		frame[0] = 1;
		long n = take(r, count);
		return n + frame[0];
	};
	long n = through(r->size / sizeof(double));
	return n + 1;
}

} // namespace chain

FRAME long pool_begin(struct request *r)
{
	chain::Arena arena;
	return arena.reserve(r) + 1;
}
