// inference: a server that loads weights, reserves a KV cache, and then allocates and frees a workspace for every
// request, until SIGTERM or for --duration seconds. Version 2 reserves a larger cache and keeps a prefix cache.
#include "cuda.h"
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <getopt.h>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define OUT_OF_LINE __attribute__((noinline, noclone))

namespace engine {

constexpr size_t MiB = 1ul << 20;

struct Options {
	int version = 1, workers = 2, interval_ms = 20;
	double duration = 0;
};

OUT_OF_LINE void check(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "inference: %s: CUDA error %d\n", what, result);
		exit(1);
	}
}

// Memory of the device for as long as the buffer lives.
class DeviceBuffer {
public:
	OUT_OF_LINE explicit DeviceBuffer(size_t bytes) { check(cuMemAlloc_v2(&pointer_, bytes), "cuMemAlloc_v2"); }
	OUT_OF_LINE ~DeviceBuffer() { cuMemFree_v2(pointer_); }
	DeviceBuffer(const DeviceBuffer &) = delete;
	DeviceBuffer &operator=(const DeviceBuffer &) = delete;

private:
	CUdeviceptr pointer_ = 0;
};

using Buffer = std::unique_ptr<DeviceBuffer>;

class WeightLoader {
public:
	OUT_OF_LINE void load(int layers)
	{
		for (int layer = 0; layer < layers; layer++)
			tensors_.push_back(loadTensor("layer." + std::to_string(layer), 48 * MiB + layer % 4 * MiB));
		tensors_.push_back(loadTensor("embedding", 256 * MiB));
	}

private:
	// Through pinned memory, as a file would be read.
	OUT_OF_LINE Buffer loadTensor(const std::string &, size_t bytes)
	{
		void *staging = nullptr;
		check(cuMemHostAlloc(&staging, bytes / 8, 0), "cuMemHostAlloc");
		Buffer tensor(new DeviceBuffer(bytes));
		check(cuMemFreeHost(staging), "cuMemFreeHost");
		return tensor;
	}
	std::vector<Buffer> tensors_;
};

class KVCache {
public:
	OUT_OF_LINE void reserve(size_t bytes)
	{
		for (int half = 0; half < 2; half++)
			halves_.emplace_back(new DeviceBuffer(bytes / 2));
	}

private:
	std::vector<Buffer> halves_;
};

// Remembers what version 2 computed for the beginning of a prompt, a bounded number of them.
class PrefixCache {
public:
	OUT_OF_LINE void insert(unsigned prefix)
	{
		auto &entry = entries_[prefix % 32];
		if (!entry)
			entry.reset(new DeviceBuffer(24 * MiB));
	}

private:
	std::map<unsigned, Buffer> entries_;
};

class Workspace {
public:
	OUT_OF_LINE explicit Workspace(size_t bytes) { check(cuMemAllocAsync(&pointer_, bytes, nullptr), "cuMemAllocAsync"); }
	OUT_OF_LINE ~Workspace() { cuMemFreeAsync(pointer_, nullptr); }

private:
	CUdeviceptr pointer_ = 0;
};

class Scheduler {
public:
	explicit Scheduler(const Options &options) : options_(options) {}

	OUT_OF_LINE void step(unsigned request)
	{
		prefill(request);
		for (int token = 0; token < 3; token++)
			decode(request, token);
		if (options_.version >= 2)
			prefixes_.insert(request);
	}

private:
	OUT_OF_LINE void prefill(unsigned request)
	{
		Workspace attention((16 + request % 8) * MiB);
		Workspace logits(4 * MiB);
	}

	OUT_OF_LINE void decode(unsigned, int token) { Workspace attention((2 + token) * MiB); }

	const Options &options_;
	PrefixCache prefixes_;
};

class Server {
public:
	explicit Server(const Options &options) : options_(options) {}

	OUT_OF_LINE void serve()
	{
		check(cuInit(0), "cuInit");
		check(cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
		check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
		weights_.load(24);
		cache_.reserve((options_.version >= 2 ? 6144 : 2048) * MiB);
		puts("ready");
		fflush(stdout);
		std::vector<std::thread> workers;
		for (int i = 0; i < options_.workers; i++)
			workers.emplace_back(&Server::work, this, i);
		waitForEnd();
		stop_ = true;
		for (auto &w : workers)
			w.join();
	}

private:
	OUT_OF_LINE void work(int worker)
	{
		check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
		Scheduler scheduler(options_);
		for (unsigned request = worker; !stop_; request += options_.workers) {
			scheduler.step(request);
			std::this_thread::sleep_for(std::chrono::milliseconds(options_.interval_ms));
		}
	}

	OUT_OF_LINE void waitForEnd()
	{
		sigset_t end;
		sigemptyset(&end);
		sigaddset(&end, SIGTERM);
		sigaddset(&end, SIGINT);
		timespec after = {time_t(options_.duration), long((options_.duration - long(options_.duration)) * 1e9)};
		sigtimedwait(&end, nullptr, options_.duration ? &after : nullptr);
	}

	const Options &options_;
	CUcontext context_ = nullptr;
	WeightLoader weights_;
	KVCache cache_;
	std::atomic<bool> stop_{false};
};

} // namespace engine

int main(int argc, char **argv)
{
	static const option options[] = {{"version", 1, nullptr, 'v'}, {"duration", 1, nullptr, 'd'}, {"interval", 1, nullptr, 'i'},
					 {"workers", 1, nullptr, 'w'}, {"help", 0, nullptr, 'h'}, {}};
	engine::Options o;
	sigset_t end;

	for (int c; (c = getopt_long(argc, argv, "", options, nullptr)) != -1;)
		switch (c) {
		case 'v': o.version = atoi(optarg + (*optarg == 'v')); break;
		case 'd': o.duration = atof(optarg); break;
		case 'i': o.interval_ms = atoi(optarg); break;
		case 'w': o.workers = atoi(optarg); break;
		default:
			fputs("usage: inference [--version v1|v2] [--duration SECONDS] [--interval MILLISECONDS] [--workers N]\n"
			      "prints \"ready\" once the weights and the KV cache are there; ends on SIGTERM or after the duration\n",
			      c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigaddset(&end, SIGINT);
	sigprocmask(SIG_BLOCK, &end, nullptr);
	engine::Server(o).serve();
	return 0;
}
