#!/usr/bin/env bash
# setup.sh demo|test|generate: installs the Debian packages that a group of make targets needs and this machine lacks, and
# says which. Silent where nothing is missing.
set -euo pipefail

# Each line: the groups that need a command or file, the command or file, the packages that bring it.
needs='
demo,test     gcc        gcc libc6-dev
demo,test     python3    python3
demo,test     g++        g++
test          clang      clang
test          strip      binutils
test          chromium   chromium
generate      clang-14   clang-14 libc6-dev
generate      /usr/include/bpf/bpf_helpers.h libbpf-dev
generate      llvm-strip-14 llvm-14
generate      npm        nodejs npm
'
case ${1-} in demo | test | generate) ;; *) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;; esac
missing=()
while read -r groups command packages; do
  [[ ,$groups, == *,$1,* ]] || continue
  [ -e "$command" ] || command -v "$command" >/dev/null || read -ra missing <<<"${missing[*]-} $packages"
done <<<"$needs"
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "setup: install ${missing[*]}, or run this as root on Debian 12" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -q && apt-get install -qy --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
