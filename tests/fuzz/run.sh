#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run.sh RUNS PROGRAM CORPUS: a fuzz target as a test: the seeds in CORPUS (which need not exist),
# then inputs up to that many, made of them from a fixed seed. -entropic=0: the schedule by entropy
# takes 90% of the time on targets of many features, and covers no more in as many inputs. The
# folder that libFuzzer writes to is new each time, so that every run is the same.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
runs=$1
set -- "$2" "$scratch" "$3"
# An error is not 77, as libFuzzer has it by itself: that is a test skipped.
[ -d "$3" ] || set -- "$1" "$2"
"$1" -runs="$runs" -seed=1 -entropic=0 -error_exitcode=1 -verbosity=0 \
	-artifact_prefix="$1-" "$2" ${3:+"$3"}
