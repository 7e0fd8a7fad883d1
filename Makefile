# SPDX-License-Identifier: BSD-2-Clause
# Entry point for all common tasks. Each target installs the packages that it needs (scripts/setup)
# and then runs Meson and Ninja in build/.

PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 3600
export FUZZ_SECONDS SOAK_SECONDS

B := build
C_FILES = $(shell find src include tests bench examples -name '*.[ch]' 2>/dev/null)

.PHONY: all demo test check check-systems check-arm64 check-packages check-distros interop install bench fuzz soak coverage format clean help

all:
	@scripts/setup build
	@scripts/build $(B)

demo:
	@scripts/setup build demo
	@scripts/build $(B)
	@$(B)/roost demo
	@examples/perftest.sh
	@examples/kv.sh

test:
	@scripts/setup build check
	@scripts/check quick

check:
	@scripts/setup build check
	@scripts/check

check-systems:
	@scripts/setup build check
	@scripts/check systems

check-packages:
	@scripts/setup build check
	@tests/packages/run.py --source . --folder $(B)/systems

check-distros:
	@scripts/setup check
	@tests/distros/run.py --whole --folder $(B)/systems

interop:
	@scripts/setup build check
	@scripts/build $(B)
	@tests/interop/run.py --build $(B)

check-arm64:
	@scripts/setup build check
	@scripts/build $(B)
	@tests/arm64/run.py
	@tests/arm64/guest.py --host $(B)

soak:
	@scripts/setup build check
	@scripts/build $(B)
	@$(B)/tests/nic/test-nic-simulator --count 10000 --jobs 0
	@meson test -C $(B) --no-rebuild --setup soak --suite soak --print-errorlogs
	@scripts/soak

install:
	@scripts/setup build
	@scripts/build $(B) -Dprefix='$(PREFIX)'
	@DESTDIR='$(DESTDIR)' meson install -C $(B) --no-rebuild --quiet
	@echo "installed in $(DESTDIR)$(PREFIX); the drop-in libraries in $(DESTDIR)$(PREFIX)/lib/roost"

# Without lookup.h, an earlier setup may have run without rpcgen. Meson then looks for rpcgen again.
bench:
	@scripts/setup build bench
	@[ -e $(B)/bench/lookup.h ] || rm -f $(B)/.roost-options
	@scripts/build $(B) -- all bench
	@bench/run

fuzz:
	@scripts/setup build check
	@scripts/fuzz

coverage:
	@scripts/setup build check tools
	@scripts/coverage

format:
	@scripts/setup tools
	@clang-format -i $(C_FILES)

clean:
	rm -rf build build-asan build-tsan build-fuzz build-coverage build-mutants build-arm64 build-arm64-root

help:
	@echo "make            build/roost, and the drop-in libraries in build/lib"
	@echo "make demo       what Roost does, on this machine"
	@echo "make test       the quick tests: two to three minutes on two cores"
	@echo "make check      all tests of this system, in release and sanitized builds"
	@echo "make check-systems     the short tests of Debian 13, of arm64 and of the packages (root)"
	@echo "make soak       the long ones: 10,000 seeds of the simulator, 2 GiB messages, SOAK_SECONDS=$(SOAK_SECONDS) of attacks under ASan (root)"
	@echo "make check-packages    Debian's packages, built and tried in fresh systems of two releases, and the container (root)"
	@echo "make check-distros     the README's commands, make check too, in fresh Debian 12 and 13 (root)"
	@echo "make check-arm64 builds for arm64, runs the unit tests under emulation, and an arm64 guest beside this machine (root)"
	@echo "make interop    against the Linux kernel's RoCE in a virtual machine (root, for a tap device)"
	@echo "make install    PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)"
	@echo "make bench      measures, into bench/"
	@echo "make fuzz       FUZZ_SECONDS=$(FUZZ_SECONDS) for each target"
	@echo "make coverage   build-coverage/html/index.html"
	@echo "make format     clang-format over the C files"
	@echo "make clean"
