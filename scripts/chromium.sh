#!/bin/sh
# Installs a system Chromium with apt where this user may; says so where it stays absent.
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && exit 0
done
if command -v apt-get >/dev/null; then
    if [ "$(id -u)" = 0 ]; then sudo=; elif sudo -n true 2>/dev/null; then sudo=sudo; else sudo=none; fi
    if [ "$sudo" != none ]; then
        echo "Installing Chromium for the browser tests"
        $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit 0
    fi
fi
echo "No Chromium here and none could be installed: the browser tests will be skipped"
