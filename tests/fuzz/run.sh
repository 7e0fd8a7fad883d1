#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run.sh PROGRAM CORPUS: a fuzz target as a test: the seeds in CORPUS (which need not exist), then a fixed number of inputs
# made of them from a fixed seed. The folder that libFuzzer writes to is new each time, so that every run is the same.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
set -- "$1" "$scratch" "$2"
[ -d "$3" ] || set -- "$1" "$2"
"$1" -runs=20000 -seed=1 -verbosity=0 -artifact_prefix="$1-" "$2" ${3:+"$3"}
