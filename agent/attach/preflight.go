package attach

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func explain(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (needs CAP_BPF and CAP_PERFMON)", err)
	}
	return err
}
