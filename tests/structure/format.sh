#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# format.sh TOP: every C file is formatted as `make format` does it. Releases of clang-format differ
# in details; that of Debian 12 decides.
cd "$1" || exit 1
case $(clang-format --version 2>&1) in
*"version 14."*) ;;
*)
	echo "needs clang-format 14, here is: $(clang-format --version 2>&1 | head -n 1)"
	exit 77
	;;
esac
dirs=
for d in src include tests bench examples; do
	[ -d "$d" ] && dirs="$dirs $d"
done
# shellcheck disable=SC2086 # one word a folder
find $dirs -name '*.[ch]' -print0 | xargs -0 clang-format --dry-run -Werror 2>&1 |
	grep -A 2 'error:' && exit 1
exit 0
