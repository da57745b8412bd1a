package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Key tells files apart as uprobes do, by inode, while the file exists. Equal keys are one inode. Its text is for people.
type Key string

// FileKey gives the key of an open file; O_PATH will not do. Behind overlayfs, fstat gives another device in every
// container for one file of a shared image layer, while the kernel puts uprobes on the file of the layer: there the key
// tells the layer's file, so that all containers' views of it are one. Needs no capability from Linux 6.6 on.
func FileKey(f *os.File) (Key, error) {
	defer runtime.KeepAlive(f)
	var (
		fs   unix.Statfs_t
		stat unix.Stat_t
	)
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return "", fmt.Errorf("key of %s: fstatfs: %w", f.Name(), err)
	}
	if fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		k, err := layerKey(f)
		if err != nil {
			return "", fmt.Errorf("key of %s on overlayfs: %w", f.Name(), err)
		}
		return k, nil
	}
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return "", fmt.Errorf("key of %s: fstat: %w", f.Name(), err)
	}
	return inodeKey(stat.Dev, stat.Ino), nil
}

func inodeKey(device, inode uint64) Key {
	return Key(fmt.Sprintf("%d:%d/%d", unix.Major(device), unix.Minor(device), inode))
}

// layerKey asks overlayfs for a file handle: it is made of the UUID of the layer's file system and that file system's
// handle, inode and generation (fs/overlayfs/export.c, struct ovl_fb). Overlayfs gives it to everyone since Linux 6.6.
// Before 6.8 a mapping tells the layer's inode.
func layerKey(f *os.File) (Key, error) {
	const handleFID = 0x200 // AT_HANDLE_FID: the handle is for comparing, not for opening
	h, _, err := unix.NameToHandleAt(int(f.Fd()), "", unix.AT_EMPTY_PATH|handleFID)
	switch {
	case err == nil:
		return Key(fmt.Sprintf("layer %d/%x", h.Type(), h.Bytes())), nil
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP):
		k, err := mappedKey(f)
		return k, explain(err, unix.CAP_PERFMON)
	}
	return "", fmt.Errorf("name_to_handle_at: %w", err)
}

// mappedKey maps a page of the file and has the kernel report the mapping: overlayfs maps the layer's file, and the
// record carries the inode of what is mapped (kernel/events/core.c, perf_event_mmap_event; the overlay's since Linux 6.8).
func mappedKey(f *os.File) (Key, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_DUMMY,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits:   unix.PerfBitMmap | unix.PerfBitMmapData | unix.PerfBitMmap2 | unix.PerfBitExcludeKernel,
	}
	event, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("perf_event_open: %w", err)
	}
	defer unix.Close(event)
	page := os.Getpagesize()
	ring, err := unix.Mmap(event, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return "", fmt.Errorf("map perf ring: %w", err)
	}
	defer unix.Munmap(ring)
	mapped, err := unix.Mmap(int(f.Fd()), 0, page, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return "", fmt.Errorf("map file: %w", err)
	}
	defer unix.Munmap(mapped)

	head := atomic.LoadUint64(&(*unix.PerfEventMmapPage)(unsafe.Pointer(&ring[0])).Data_head)
	return findMapping(ring[page:][:min(head, uint64(page))], uint64(uintptr(unsafe.Pointer(&mapped[0]))))
}

// findMapping looks for the PERF_RECORD_MMAP2 of one address. After the header of 8 bytes it has, in bytes: pid 4, tid 4,
// address 8, length 8, file offset 8, device major 4, minor 4, inode 8 (include/uapi/linux/perf_event.h).
func findMapping(records []byte, address uint64) (Key, error) {
	for len(records) >= 8 {
		size := int(binary.NativeEndian.Uint16(records[6:]))
		if size < 8 || size > len(records) {
			break
		}
		r := records[:size]
		records = records[size:]
		if binary.NativeEndian.Uint32(r) == unix.PERF_RECORD_MMAP2 && size >= 56 && binary.NativeEndian.Uint64(r[16:]) == address {
			device := unix.Mkdev(binary.NativeEndian.Uint32(r[40:]), binary.NativeEndian.Uint32(r[44:]))
			return inodeKey(device, binary.NativeEndian.Uint64(r[48:])), nil
		}
	}
	return "", errors.New("the kernel reported no record of the mapping")
}
