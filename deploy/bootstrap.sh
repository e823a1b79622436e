#!/usr/bin/env bash
# Installs what building and testing Errand needs and Go does not bring: PostgreSQL, Redis, bubblewrap, ffmpeg, node with npm (for
# buf), a C compiler (for the race detector), git and make. Only what is missing, only on Debian and Ubuntu. No server is left
# running and no database cluster is made: Errand's tests start servers of their own.
set -euo pipefail

POSTGRES_MIN=15

have() { command -v "$1" >/dev/null 2>&1; }

# The major version of the newest PostgreSQL server here; 0 for none.
postgres_version() {
  local newest=0 initdb version
  for initdb in $(command -v initdb) /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb; do
    version=$("$initdb" --version 2>/dev/null | grep -oE '[0-9]+' | head -n1) || continue
    if [ "$version" -gt "$newest" ]; then newest=$version; fi
  done
  echo "$newest"
}

missing() {
  if [ "$(postgres_version)" -lt "$POSTGRES_MIN" ]; then echo postgresql; fi
  have redis-server || echo redis-server
  have bwrap || echo bubblewrap
  have ffmpeg || echo ffmpeg
  have npm || echo nodejs npm
  have gcc || echo gcc libc6-dev
  have git || echo git
  have make || echo make
}

read -r -d '' -a packages < <(missing) || true # read ends at the end of the list, which it calls an error
if [ ${#packages[@]} -eq 0 ]; then
  exit 0
fi
echo "missing: ${packages[*]}"
if ! have apt-get; then
  echo "This machine has no apt-get. Please install by hand: PostgreSQL $POSTGRES_MIN or newer (initdb, postgres), Redis 7" >&2
  echo "(redis-server), bubblewrap (bwrap), ffmpeg, node 20 with npm, gcc, git, make." >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  have sudo || {
    echo "Packages must be installed (${packages[*]}): run this as root, or install sudo." >&2
    exit 1
  }
  sudo=(sudo)
fi
root() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive "$@"; }

# The packages start servers by themselves, which nobody asked for here. 101 means: forbidden.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'root rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | root tee "$policy" >/dev/null
  root chmod +x "$policy"
fi
cluster=/etc/postgresql-common/createcluster.d/errand.conf
if [[ " ${packages[*]} " == *" postgresql "* ]]; then
  root mkdir -p "$(dirname "$cluster")"
  echo "create_main_cluster = false" | root tee "$cluster" >/dev/null
fi

root apt-get -q -o Acquire::Retries=3 update
root apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install --no-install-recommends "${packages[@]}"

if [ "$(postgres_version)" -lt "$POSTGRES_MIN" ]; then
  echo "This distribution's PostgreSQL is older than $POSTGRES_MIN: install a newer one from apt.postgresql.org." >&2
  exit 1
fi
