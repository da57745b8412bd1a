package agent

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/vramprof/vramprof/agent/gpuapi"
)

// UsualLibraries finds driver libraries where loaders look for them, so that their probes are there before the first
// program maps one: in the folders of libraryPath, a value of LD_LIBRARY_PATH, and in those that distributions and
// container toolkits put them in.
func UsualLibraries(libraryPath string) []string {
	folders := strings.Split(libraryPath, ":")
	folders = append(folders, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu",
		"/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/usr/lib/wsl/lib")
	var found []string
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		names, err := filepath.Glob(filepath.Join(folder, "lib*.so*"))
		if err != nil {
			continue // a pattern of special characters names no folder of a loader
		}
		for _, name := range names {
			if _, ok := gpuapi.DriverLibrary(path.Base(name)); ok {
				found = append(found, name)
			}
		}
	}
	return found
}
