#!/bin/sh
# Starts Notes with the Electron beside it, or, without one, as a command line in Node.
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/electron" ]; then exec "$here/electron" "$here/resources/app.asar" "$@"; fi
exec node "$here/resources/app/main.js" "$@"
