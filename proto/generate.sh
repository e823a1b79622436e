#!/usr/bin/env bash
# Generates the Go code of the .proto files with pinned tools, after linting them. With --check it changes nothing and fails when
# the committed code is not what the .proto files say. Needs Go, node and npm; fetches the tools into .tools/ and node_modules/.
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
buf=node_modules/.bin/buf
wanted=$(node -p "require('./package.json').devDependencies['@bufbuild/buf']")
if [ "$("$buf" --version 2>/dev/null)" != "$wanted" ]; then
  npm ci --no-audit --no-fund --loglevel=error >&2
fi

"$buf" lint
"$buf" format --diff --exit-code --path proto/errand >&2 || { echo "run: $buf format -w --path proto/errand" >&2; exit 1; }

# Into a folder of its own first: a reader of the tree never sees half of it, and a file whose .proto is gone is found.
fresh=$(mktemp -d .tools/generated.XXXXXX)
trap 'rm -rf "$fresh"' EXIT
"$buf" generate --output "$fresh"

status=0
while IFS= read -r file; do
  cmp -s "$fresh/$file" "$file" && continue
  if [ "${1:-}" = --check ]; then
    echo "$file is not what the .proto files say: run proto/generate.sh" >&2
    status=1
  elif [ -e "$fresh/$file" ]; then
    mkdir -p "$(dirname "$file")"
    cp "$fresh/$file" "$file"
  else
    rm "$file"
  fi
done < <({
  (cd "$fresh" && find proto -name '*.go')
  find proto/errand -name '*.pb.go' -o -name '*.connect.go'
} | sort -u)
exit $status
