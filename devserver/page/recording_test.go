package page_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/google/pprof/profile"
)

// recorded is one profile as an agent pushes it: a series' labels, a moment, and values of one or more types.
type recorded struct {
	labels map[string]string
	*profile.Profile
}

// frame of a stack: function, file, line, object.
type frame struct {
	function, file string
	line           int64
	object         string
}

// call is a stack from its outermost frame inwards, with what it allocated and what it holds.
type call struct {
	stack        []frame
	alloc, inUse int64
}

const (
	interval = 15 * time.Second
	mib      = 1 << 20
	python   = "/usr/bin/python3.12"
	torch    = "/usr/lib/libtorch_cuda.so"
	libcuda  = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
)

var (
	pythonStart = []frame{{"_start", "", 0, python}, {"__libc_start_main", "", 0, "/usr/lib/libc.so.6"}, {"Py_BytesMain", "", 0, python}, {"_PyEval_EvalFrameDefault", "", 0, python}, {"<module>", "/srv/train.py", 88, ""}, {"main", "/srv/train.py", 80, ""}}
	allocator   = []frame{{"at::empty(c10::ArrayRef<long>)", "", 0, torch}, {"c10::cuda::CUDACachingAllocator::malloc(unsigned long)", "", 0, torch}, {"cudaMalloc", "", 0, "/usr/lib/libcudart.so.12"}, {"cuMemAlloc_v2", "", 0, libcuda}}
	forward     = frames(pythonStart, []frame{{"Trainer.fit", "/srv/trainer.py", 41, ""}, {"train_step", "/srv/trainer.py", 63, ""}, {"Model.forward", "/srv/model.py", 112, ""}, {"Attention.forward", "/srv/model.py", 57, ""}}, allocator)
	mlp         = frames(pythonStart, []frame{{"Trainer.fit", "/srv/trainer.py", 41, ""}, {"train_step", "/srv/trainer.py", 63, ""}, {"Model.forward", "/srv/model.py", 115, ""}, {"MLP.forward", "/srv/model.py", 84, ""}}, allocator)
	optimizer   = frames(pythonStart, []frame{{"Trainer.fit", "/srv/trainer.py", 44, ""}, {"AdamW.step", "/srv/optim.py", 29, ""}, {"AdamW.init_state", "/srv/optim.py", 17, ""}}, allocator)
	weights     = frames(pythonStart, []frame{{"load_weights", "/srv/model.py", 140, ""}}, allocator)
	serverStart = []frame{{"_start", "", 0, "/srv/server"}, {"__libc_start_main", "", 0, "/usr/lib/libc.so.6"}, {"main", "/src/server.cc", 31, "/srv/server"}, {"engine::Server::serve()", "/src/engine.cc", 210, "/srv/server"}}
	kvCache     = frames(serverStart, []frame{{"engine::KVCache::reserve(unsigned long)", "/src/cache.cc", 77, "/srv/server"}, {"cuMemCreate", "", 0, libcuda}})
	workspace   = frames(serverStart, []frame{{"engine::Batch::run(engine::Request const*)", "/src/batch.cc", 142, "/srv/server"}, {"libplugin.so+0x1234", "", 0, "/srv/libplugin.so"}, {"cuMemAllocAsync", "", 0, libcuda}})
	truncated   = frames(serverStart, []frame{{"[truncated: no unwind rows]", "", 0, ""}, {"cuMemAlloc_v2", "", 0, libcuda}})
)

func frames(parts ...[]frame) []frame {
	var all []frame
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// demo is twelve intervals, up to the given moment, of a training in two versions and of a server that holds a cache.
func demo(end time.Time) []recorded {
	var all []recorded
	for i := range 12 {
		at := end.Truncate(interval).Add(time.Duration(i-11) * interval)
		grow := int64(i + 1)
		first := int64(0)
		if i == 0 {
			first = 1
		}
		for version, factor := range map[string]int64{"v1": 1, "v2": 2} {
			all = append(all, record(at, map[string]string{"service_name": "train", "version": version, "memory": "device", "api": "cuda", "pod": "train-" + version}, []call{
				{forward, 96 * mib * factor, 96 * mib * factor * grow},
				{mlp, 64 * mib, 64 * mib},
				{optimizer, 512 * mib * first, 512 * mib},
				{weights, 1536 * mib * first, 1536 * mib},
			})...)
		}
		all = append(all, record(at, map[string]string{"service_name": "inference", "version": "v7", "memory": "vmm", "api": "cuda", "pod": "inference-0"}, []call{
			{kvCache, 6144 * mib * first, 6144 * mib},
			{workspace, 48 * mib, 192 * mib},
			{truncated, 8 * mib, 32 * mib},
		})...)
	}
	return all
}

// record makes what an agent pushes at one moment: what was allocated since the last, and what is held, in a profile of its own.
func record(at time.Time, labels map[string]string, calls []call) []recorded {
	one := func(at time.Time, prefix string, value func(call) int64) recorded {
		p := &profile.Profile{
			SampleType: []*profile.ValueType{{Type: prefix + "_bytes", Unit: "bytes"}, {Type: prefix + "_objects", Unit: "count"}},
			PeriodType: &profile.ValueType{Type: "gpu", Unit: "bytes"},
			Period:     1,
			TimeNanos:  at.UnixNano(),
		}
		for _, c := range calls {
			if value(c) > 0 {
				p.Sample = append(p.Sample, &profile.Sample{Location: locations(p, c.stack), Value: []int64{value(c), 1}})
			}
		}
		return recorded{labels, p}
	}
	return []recorded{
		one(at, "gpu_alloc", func(c call) int64 { return c.alloc }),
		one(at.Add(1), "gpu_inuse", func(c call) int64 { return c.inUse }),
	}
}

// locations adds a stack's frames to a profile and returns them innermost first, as pprof has them.
func locations(p *profile.Profile, stack []frame) []*profile.Location {
	found := make([]*profile.Location, len(stack))
	for i, f := range stack {
		mapping := &profile.Mapping{ID: uint64(len(p.Mapping) + 1), File: cmp.Or(f.object, "[no object]"), HasFunctions: true}
		function := &profile.Function{ID: uint64(len(p.Function) + 1), Name: f.function, Filename: f.file}
		location := &profile.Location{ID: uint64(len(p.Location) + 1), Mapping: mapping, Line: []profile.Line{{Function: function, Line: f.line}}}
		p.Mapping, p.Function, p.Location = append(p.Mapping, mapping), append(p.Function, function), append(p.Location, location)
		found[len(stack)-1-i] = location
	}
	return found
}

// wide is one profile of frames that are about a pixel wide, ten deep: what costs the page most.
func wide(at time.Time, columns int) []recorded {
	var calls []call
	for i := range columns {
		stack := frames(pythonStart)
		for depth := range 10 {
			stack = append(stack, frame{fmt.Sprintf("layer_%d_%d", depth, i), "/srv/deep.py", int64(depth + 1), ""})
		}
		calls = append(calls, call{stack, mib, mib})
	}
	return record(at, map[string]string{"service_name": "wide"}, calls)
}
