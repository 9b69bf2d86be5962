#!/bin/sh
# Fetches axe-core, which checks the pages for accessibility, where npm is there to fetch it.
version=4.14.1
target=build/node
[ -f "$target/node_modules/axe-core/axe.min.js" ] && exit 0
command -v npm >/dev/null || { echo "No npm here: the accessibility checks will be skipped"; exit 0; }
mkdir -p "$target"
npm install --silent --no-audit --no-fund --prefix "$target" "axe-core@$version" >/dev/null \
    || echo "axe-core is not to be had: the accessibility checks will be skipped"
