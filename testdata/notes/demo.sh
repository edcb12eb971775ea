#!/bin/sh
# Compares two versions of the sample application, each opened in a container of its own.
set -eu
cd "$(dirname "$0")/../.."
rea() { printf '\n$ rea %s\n' "$*"; if [ "$(id -u)" = 0 ] || [ -w /var/run/docker.sock ]; then bin/rea "$@"; else sudo bin/rea "$@"; fi; }
rea compare testdata/notes/notes-1.0.0.zip testdata/notes/notes-1.1.0.zip
