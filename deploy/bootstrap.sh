#!/usr/bin/env bash
# Installs what building and testing Errand needs and Go does not bring: PostgreSQL, Redis, node with npm (for buf).
# Only what is missing, only on Debian and Ubuntu. No server is left running.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }
have_postgres() { have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

packages=()
have_postgres || packages+=(postgresql)
have redis-server || packages+=(redis-server)
have npm || packages+=(nodejs npm)
have gcc || packages+=(gcc libc6-dev) # the race detector wants cgo
have git || packages+=(git)

if [ ${#packages[@]} -eq 0 ]; then
  exit 0
fi
echo "missing: ${packages[*]}"
if ! have apt-get; then
  echo "This machine has no apt-get. Please install by hand: PostgreSQL 15 or newer (initdb, postgres), Redis 7, node 20 with npm, gcc." >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  have sudo || { echo "Run this as root, or install sudo: packages must be installed (${packages[*]})." >&2; exit 1; }
  sudo=(sudo)
fi
# The packages start servers by themselves, which nobody asked for here; the tests start their own.
policy=/usr/sbin/policy-rc.d
made_policy=false
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
  "${sudo[@]}" chmod +x "$policy"
  made_policy=true
fi
cleanup() { if $made_policy; then "${sudo[@]}" rm -f "$policy"; fi; }
trap cleanup EXIT
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -q
"${sudo[@]}" apt-get install -q -y --no-install-recommends "${packages[@]}"
