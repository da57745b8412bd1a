// Package vramprof pins the dependencies that stations under construction use.
package vramprof
import (
 _ "github.com/cilium/ebpf"
 _ "github.com/cilium/ebpf/link"
 _ "connectrpc.com/connect"
 _ "connectrpc.com/grpchealth"
 _ "connectrpc.com/grpcreflect"
 _ "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
 _ "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
 _ "github.com/google/pprof/profile"
 _ "github.com/ianlancetaylor/demangle"
 _ "golang.org/x/arch/x86/x86asm"
 _ "golang.org/x/sys/unix"
 _ "github.com/spf13/cobra"
 _ "github.com/prometheus/client_golang/prometheus"
 _ "google.golang.org/protobuf/proto"
 _ "golang.org/x/sync/errgroup"
)
