package pythons

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// build is one standalone build: a version of a Go module, pinned by the sum that go.sum would have. Several versions of
// one module cannot be in a go.mod, so it is not there.
type build struct{ version, module, sum string }

const modulePath = "github.com/kluctl/go-embed-python"

var standalone = []build{
	{"3.10.16", "v0.0.0-3.10.16-20241219-1", "h1:bfJRrtWlbdrPtwXXXZzA95yj2Pr9AvSbxDEm8YvbaP0="},
	{"3.11.11", "v0.0.0-3.11.11-20241219-1", "h1:yVXFTxa6cvhLC6TwkDEHmNaiWlDyaFEGiXd1DQdoeOU="},
	{"3.13.1", "v0.0.0-3.13.1-20241219-1", "h1:x1cSEj4Ug5mpuZgUHLvUmlc5r//KHFn6iYiRSrRcVy4="},
	{"3.14.6", "v0.0.0-3.14.6-20260610-1", "h1:oGUS7++Wm3LgxUfD6AmJgKbKQD2wdQFO9PzyJv6T+E4="},
}

// unpacked gives the folder with the build, and makes it if it is not in the cache. It appears there whole or not at all,
// also if several processes make it at once.
func (b build) unpacked(ctx context.Context, cache string) (string, error) {
	to := filepath.Join(cache, b.module+"-"+runtime.GOARCH)
	if _, err := os.Stat(to); err == nil {
		return to, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	from, err := b.download(ctx, cache)
	if err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(cache, ".unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	data := filepath.Join(from, "python", "internal", "data", "linux-"+runtime.GOARCH)
	if err := unpack(os.DirFS(data), temporary); err != nil {
		return "", fmt.Errorf("unpack %s: %w", data, err)
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return to, nil
}

// download has the go command put the module into its cache, and tells where.
func (b build) download(ctx context.Context, outside string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", modulePath+"@"+b.module)
	cmd.Dir = outside // of our own module, whose go.sum it is not to change
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if err := json.Unmarshal(out, &module); err != nil || runErr != nil {
		return "", fmt.Errorf("go mod download %s@%s: %w: %s%s", modulePath, b.module, errors.Join(runErr, err), module.Error, stderr.Bytes())
	}
	if module.Sum != b.sum {
		return "", fmt.Errorf("%s@%s has the sum %s and not %s: it is not what was tested before", modulePath, b.module, module.Sum, b.sum)
	}
	return module.Dir, nil
}

// unpack writes the files that files.json lists; the large ones are compressed.
func unpack(from fs.FS, to string) error {
	list, err := fs.ReadFile(from, "files.json")
	if err != nil {
		return err
	}
	var content struct {
		Files []struct {
			Name       string
			Size       int64
			Perm       fs.FileMode
			Symlink    string
			Compressed bool
		}
	}
	if err := json.Unmarshal(list, &content); err != nil {
		return fmt.Errorf("files.json: %w", err)
	}
	for _, f := range content.Files {
		if !filepath.IsLocal(f.Name) {
			return fmt.Errorf("files.json: %q is outside", f.Name)
		}
		path := filepath.Join(to, f.Name)
		switch {
		case f.Perm.IsDir():
			err = os.MkdirAll(path, 0o755)
		case f.Symlink != "":
			err = os.Symlink(f.Symlink, path)
		default:
			err = unpackFile(from, f.Name, f.Compressed, path, f.Perm.Perm(), f.Size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(from fs.FS, name string, compressed bool, to string, perm fs.FileMode, size int64) (err error) {
	if compressed {
		name += ".gz"
	}
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	var data io.Reader = in
	if compressed {
		if data, err = gzip.NewReader(in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, io.LimitReader(data, size+1))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if n != size {
		return fmt.Errorf("%s: not the %d bytes of files.json", name, size)
	}
	return nil
}
