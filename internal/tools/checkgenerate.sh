#!/usr/bin/env bash
# checkgenerate.sh: generates everything again in a copy of the work tree, and fails if a file differs from what is here.
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p .tools
ln -s "$PWD/.tools" "$copy/.tools"
git ls-files -z --cached --others --exclude-standard | grep -zvxF -f <(git ls-files --deleted) |
  tar --create --null --files-from=- | tar --extract --directory="$copy"
cd "$copy"
git init -q
git add -A
git -c user.name=check -c user.email= commit -qm "as it is"
make --no-print-directory generate
git add -A
if ! git diff --cached --quiet; then
  git --no-pager diff --cached --stat >&2
  echo "checkgenerate: these files are not what \`make generate\` makes: run it and commit them" >&2
  exit 1
fi
