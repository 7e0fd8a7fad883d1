# SPDX-License-Identifier: BSD-2-Clause
"""Debian's archive, as this machine's apt knows it."""
import os
import shutil
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Missing(Exception):
    """Something that the caller needs is missing on this machine."""


def output(*command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                          **more)
    if done.returncode:
        raise Missing(f"{' '.join(command[:2])}: {' '.join(done.stdout.split())[-500:]}")
    return done.stdout


def codename():
    """Returns this machine's suite (bookworm, trixie), or None: not Debian, or a release without a
    name."""
    release = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release", encoding="utf-8")
                   if "=" in line)
    return release.get("VERSION_CODENAME") if release.get("ID") == "debian" else None


def archive():
    """Returns the source of this machine's packages: apt's first entry for the release's own
    suite."""
    suite = codename()
    if not shutil.which("apt-get") or not suite:
        raise Missing("no Debian, so apt knows of no archive of its packages")
    for line in output("apt-get", "indextargets", "--format",
                       "$(RELEASE) $(COMPONENT) $(REPO_URI)").splitlines():
        release, component, uri = line.split(" ", 2)
        if release == suite and component == "main":
            return uri
    raise Missing("apt is configured for no archive of this release")


def keyring():
    if not os.path.exists(KEYRING):
        raise Missing(f"no {KEYRING} (package debian-archive-keyring)")
    return KEYRING
