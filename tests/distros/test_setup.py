#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Systems on which Roost cannot be built get one line with the remedy: scripts/setup with faked
programs on PATH, and Meson with an old compiler, without libraries, or for a big-endian machine.
scripts/build shows only this line.

usage: test_setup.py TOP
"""
import os
import shutil
import subprocess
import sys
import tempfile

TOOLS = ["sh", "awk", "cat", "dirname", "env", "head", "mktemp", "printf", "rm", "sort"]
# The programs of a system: PATH has only these and TOOLS. apt-get records its arguments.
SYSTEM = {
    "dpkg-query": 'echo "installed gcc"',
    "apt-cache":
    'shift; for p in "$@"; do [ "$p" = "$ABSENT" ] || echo " $p | 1.0 | http://archive main"; done',
    "apt-get": 'echo "$@" >>"$ASKED"',
    "id": "echo 0",
    "uname": "echo 6.1.0-12-amd64",
}


class Case:
    def __init__(self, folder, setup):
        self.bin, self.setup, self.asked = (os.path.join(folder, "bin"), setup,
                                            os.path.join(folder, "asked"))

    def run(self, *groups, without=(), absent="", **programs):
        """Returns (exit status, lines, arguments of apt-get)."""
        shutil.rmtree(self.bin, ignore_errors=True)
        os.mkdir(self.bin)
        for tool in TOOLS:
            os.symlink(shutil.which(tool), os.path.join(self.bin, tool))
        for name, text in {**SYSTEM, **{name.replace("_", "-"): text
                                        for name, text in programs.items()}}.items():
            if name not in without:
                with open(os.path.join(self.bin, name), "w", encoding="ascii") as file:
                    file.write(f"#!/bin/sh\n{text}\n")
                os.chmod(file.name, 0o755)
        open(self.asked, "w", encoding="ascii").close()
        done = subprocess.run([self.setup, *groups],
                              env={"PATH": self.bin, "ABSENT": absent, "ASKED": self.asked},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        with open(self.asked, encoding="ascii") as file:
            return done.returncode, done.stdout.splitlines(), file.read()


def expect(label, got, status, *words, asked=None, not_asked=None):
    """The last line has all the words. Of a failure there is no other line."""
    code, lines, apt = got
    last = lines[-1] if lines else ""
    problem = f"exit status {code}" if code != status else None
    problem = problem or next(
        (f"the last line lacks '{word}'" for word in words if word not in last), None)
    problem = problem or (f"{len(lines)} lines" if status and len(lines) != 1 else None)
    problem = problem or (f"apt-get was not asked for {asked}" if asked
                          and asked not in apt else None)
    problem = problem or (f"apt-get was asked for {not_asked}" if not_asked
                          and not_asked in apt else None)
    print(f"{'FAILED' if problem else 'ok    '} {label}"
          + (f": {problem}\n{chr(10).join(lines)}\n{apt}" if problem else ""), flush=True)
    return bool(problem)


def setup_cases(case):
    yield expect("a fresh Debian", case.run("build"), 0, "installing", "meson", asked=" meson ")
    yield expect("no Debian, nothing installed", case.run("build", "demo", without=["dpkg-query"]),
                 1, "no Debian: install by hand", "libibverbs-dev", "perftest", "docs/platforms.md")
    yield expect("no Debian, but dpkg",
                 case.run("build", without=["apt-get", "apt-cache"]), 1,
                 "no Debian: install by hand", "libisal-dev", "docs/platforms.md")
    yield expect("no Debian, but Meson", case.run("build", without=["dpkg-query"], meson=":"), 0)
    for release in ("5.4.0-216-generic", "4.19.0", "5.9.16-1"):
        yield expect(f"Linux {release}", case.run("build", "check", uname=f"echo {release}"), 1,
                     f"Linux {release} is too old", "5.10")
    yield expect("Linux 5.4 builds", case.run("build", uname="echo 5.4.0"), 0, "installing")
    for release in ("5.10.0", "5.10", "6.12.3+deb13-amd64", "10.0.1"):
        yield expect(f"Linux {release}", case.run("build", "demo", uname=f"echo {release}"), 0,
                     "installing")
    # The line before it names the packages to be installed.
    code, lines, apt = case.run("build", absent="libisal-dev")
    yield expect("a package of the build is not to be had", (code, lines[1:], apt), 1,
                 "no package libisal-dev", "sources.list", not_asked="install")
    yield expect("a package of the tests is not to be had",
                 case.run("build", "check", absent="librpma-dev"), 0, "has no librpma-dev",
                 "skipped", asked=" librdmacm-dev ", not_asked="librpma-dev")
    have = "\n".join(f'echo "installed {line.split()[0]}"'
                     for line in open(os.path.join(os.path.dirname(case.setup), "packages.list"),
                                      encoding="ascii") if line.strip()
                     and not line.startswith(("#", "librpma-dev")))
    yield expect("it is known that it is not: nothing is asked for, by nobody",
                 case.run("build", "check", absent="librpma-dev", dpkg_query=have, id="echo 1000"),
                 0, "has no librpma-dev", not_asked="update")
    yield expect("neither root nor sudo", case.run("build", id="echo 1000"), 1,
                 "apt-get install --no-install-recommends")
    yield expect("no group", case.run(), 1, "usage: scripts/setup GROUP")


BIG_ENDIAN = """[binaries]
c = 'gcc'
pkg-config = 'pkg-config'

[properties]
needs_exe_wrapper = true

[host_machine]
system = 'linux'
cpu_family = 's390x'
cpu = 'z15'
endian = 'big'
"""


def meson_errors(folder, top, *options, **env):
    """Configures a new folder. Returns (exit status, lines with an error, "")."""
    build = os.path.join(folder, "build")
    shutil.rmtree(build, ignore_errors=True)
    done = subprocess.run([shutil.which("meson"), "setup", build, top, *options],
                          env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    return done.returncode, [line for line in done.stdout.splitlines() if "ERROR" in line], ""


def build(folder, top, target=None, **env):
    """Has scripts/build, which `make` calls, configure a new folder. Returns (exit status, lines,
    "")."""
    target = target or os.path.join(folder, "by-script")
    done = subprocess.run([os.path.join(top, "scripts/build"), target, "--", "build.ninja"],
                          cwd=top, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    return done.returncode, done.stdout.splitlines(), ""


def prefix(folder, top, path):
    """Configures a new folder with a faked Meson, as `make install PREFIX=path` does, and then as
    `make`. Returns (exit status, the arguments of Meson at both times, "")."""
    tools, target = os.path.join(folder, "prefix"), os.path.join(folder, "with-prefix")
    asked = os.path.join(folder, "meson-asked")
    recorder = f'printf "%s|" "$@" >>"{asked}"; echo >>"{asked}"; touch "{target}/build.ninja"'
    for made in (tools, target):
        os.mkdir(made)
    for name, text in (("meson", recorder), ("ninja", "exit 0")):
        with open(os.path.join(tools, name), "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(os.path.join(tools, name), 0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    recipe = subprocess.run(["make", "-C", top, "-n", f"B={target}", f"PREFIX={path}", "install"],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    line = next(line for line in recipe.splitlines() if line.startswith("scripts/build"))
    codes = [subprocess.run(["sh", "-c", command], cwd=top, env=env, check=False).returncode
             for command in (line, f"scripts/build {target}")]
    with open(asked, encoding="ascii") as file:
        return max(codes), [" and ".join(file.read().replace(target, "DIR").splitlines())], ""


def meson_cases(folder, top):
    """A Meson that is too old, and another error, of which all lines are shown."""
    tools = os.path.join(folder, "old")
    os.mkdir(tools)

    def failing(line):
        path = os.path.join(tools, "meson")
        with open(path, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\necho Version: 1\necho "../meson.build:3:0: {line}"\nexit 1\n')
        os.chmod(path, 0o755)
        return build(folder, top, PATH=f"{tools}:{os.environ['PATH']}")

    yield expect("an old Meson",
                 failing("ERROR: Meson version is 0.61.2 but project requires >= 1.0"), 1,
                 "roost: build: Meson version is 0.61.2", ">= 1.0: install a newer Meson")
    code, lines, _ = failing("ERROR: no space left")
    yield expect("another error", (code, [" ".join(lines)], ""), 1, "Version: 1", "no space left")
    # A folder with other files, as after `make check-distros`, or by a mistake.
    kept = os.path.join(folder, "by-script", "systems", "file")
    for began in ("", "meson-private"):  # of a run that was interrupted
        os.makedirs(os.path.join(folder, "by-script", began), exist_ok=True)
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        open(kept, "w", encoding="ascii").close()
        failing("ERROR: no space left")
        yield expect(f"files of others stay, {began or 'nothing'} began",
                     (int(not os.path.exists(kept)), [""], ""), 0)
    inside = os.path.join(kept, "build")  # as in a tree that is read-only
    yield expect("a folder that cannot be made", build(folder, top, inside, LC_ALL="C"), 1,
                 "roost: build: ", kept, "Not a directory")
    done = subprocess.run([os.path.join(top, "scripts/build"), "--sanitize=thread"], cwd=folder,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    code, lines, _ = prefix(folder, top, "/a b")
    wanted = "setup|DIR|-Dlibdir=lib|-Dprefix=/a b|"
    yield expect("a prefix with a blank", (code or int(lines != [wanted]), lines, ""), 0, wanted)
    yield expect("no folder", (done.returncode, done.stdout.splitlines(), ""), 1,
                 "usage: scripts/build DIRECTORY")


def machine_cases(folder, top):
    """The compiler's programs are not run: Meson believes what the file says about the machine."""
    path = os.path.join(folder, "big.ini")
    with open(path, "w", encoding="ascii") as file:
        file.write(BIG_ENDIAN)
    yield expect("a big-endian machine", meson_errors(folder, top, "--cross-file", path), 1,
                 "little-endian machines only", "s390x", "big-endian")


def compiler_cases(folder, top):
    """The real compiler, which says that it is older: Meson asks the preprocessor."""
    fake = os.path.join(folder, "cc")
    for name, options, wanted in (("gcc", "-U__GNUC__ -D__GNUC__=9", "gcc 9"),
                                  ("clang", "-U__clang_major__ -D__clang_major__=10", "clang 10")):
        real = shutil.which(name)
        if not real:
            print(f"{name} is not installed: not tried")
            continue
        # clang tells its version in words.
        words = (
            f'case "$1" in --version) {real} --version | sed "s/clang version [0-9]*/clang version '
            f'10/"; exit ;; esac\n' if name == "clang" else "")
        with open(fake, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\n{words}exec {real} {options} "$@"\n')
        os.chmod(fake, 0o755)
        yield expect(f"an old {name}", meson_errors(folder, top, CC=fake), 1, wanted, "too old",
                     "install")
        yield expect(f"an old {name}, make", build(folder, top, CC=fake), 1, "roost: build: ",
                     wanted, "too old", "install")


def missing_cases(folder, top):
    """On a system that is not Debian, Meson says what to install."""
    yield expect("no libraries", meson_errors(folder, top, "-Dtests=false",
                                              PKG_CONFIG_LIBDIR="/nonexistent"), 1,
                 "install what Debian calls", "libisal-dev", "libxxhash-dev", "libjansson-dev",
                 "libevent-dev (names elsewhere: docs/platforms.md)")
    fake = os.path.join(folder, "cc")
    with open(fake, "w", encoding="ascii") as file:
        file.write('#!/bin/sh\nexec gcc -nostdinc "$@"\n')
    os.chmod(fake, 0o755)
    yield expect("no headers of rdma-core", meson_errors(folder, top, CC=fake), 1,
                 "install what Debian calls libibverbs-dev librdmacm-dev (names elsewhere")


def main():
    top = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        case = Case(folder, os.path.join(top, "scripts", "setup"))
        failed = sum(setup_cases(case)) + sum(compiler_cases(folder, top)) + sum(
            machine_cases(folder, top)) + sum(missing_cases(folder, top)) + sum(
                meson_cases(folder, top))
    print(f"{failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
