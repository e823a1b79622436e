#!/usr/bin/env bash
# Generates the Go code of the protobuf files with pinned tools. With --check it only tells whether the committed code is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

PROTOC_GEN_GO=v1.36.12
PROTOC_GEN_CONNECT_GO=v1.21.1

stamp=.tools/proto-$PROTOC_GEN_GO-$PROTOC_GEN_CONNECT_GO
if [ ! -e "$stamp" ]; then
  mkdir -p .tools/bin
  GOBIN=$PWD/.tools/bin go install google.golang.org/protobuf/cmd/protoc-gen-go@$PROTOC_GEN_GO
  GOBIN=$PWD/.tools/bin go install connectrpc.com/connect/cmd/protoc-gen-connect-go@$PROTOC_GEN_CONNECT_GO
  touch "$stamp"
fi
[ -x node_modules/.bin/buf ] || npm ci --no-audit --no-fund --loglevel=error >&2
buf=node_modules/.bin/buf

"$buf" lint
if [ "${1:-}" = --check ]; then
  out=.tools/generated
  rm -rf "$out" && mkdir -p "$out"
  "$buf" generate --output "$out"
  status=0
  while IFS= read -r file; do
    if ! cmp -s "$out/$file" "$file"; then
      echo "$file is not what the .proto files say: run make generate" >&2
      status=1
    fi
  done < <(cd "$out" && find proto -name '*.go')
  exit $status
fi
"$buf" generate
