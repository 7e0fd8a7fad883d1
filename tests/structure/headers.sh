#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# headers.sh TOP: each installed header stands alone, in C11, C17 and C++17, without a warning; so
# does the guide's kernel in C.
set -eu

cd "$1"
cxx=$(command -v c++ || command -v clang++ || true)
failed=0

# WORD...: a compiler with its options has no warning about stdin.
quiet() {
	"$@" -Wall -Wextra -pedantic -Werror -c -o /dev/null -Iinclude -
}

for header in include/roost/*.h; do
	line="#include <roost/${header##*/}>"
	for standard in c11 c17; do
		echo "$line" | quiet cc -x c -std=$standard || failed=1
	done
	if [ -n "$cxx" ]; then
		echo "$line" | quiet "$cxx" -x c++ -std=c++17 || failed=1
	fi
done
quiet cc -x c -std=c11 -Iexamples/kernels/sum <examples/kernels/sum/sum.c || failed=1
[ $failed -eq 0 ] || exit 1
if [ -z "$cxx" ]; then
	echo "no C++ compiler: C++17 was not tried"
	exit 77
fi
