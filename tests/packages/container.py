# SPDX-License-Identifier: BSD-2-Clause
"""Executes the Containerfile without a container engine: each stage is a fresh system, and each RUN
a command in it."""
import glob
import json
import os
import re
import shutil

from chroot import Chroot, Failed
from system import copy_source

IMAGES = {'debian:12': 'bookworm', 'debian:13': 'trixie'}
USER = 54321  # as in Kubernetes: without an entry in passwd


def instructions(text):
    """Returns [(word, rest of the line)], with continued lines joined and without comments."""
    lines = [line for line in text.splitlines() if line.strip()
             and not line.lstrip().startswith('#')]
    return [tuple(re.split(r'\s+', line.strip(), maxsplit=1))
            for line in '\n'.join(lines).replace('\\\n', ' ').splitlines()]


class Stage:
    def __init__(self, chroot):
        self.chroot, self.folder, self.env, self.start, self.command = chroot, '/', {}, [], []

    def copy(self, words, source, stages):
        origin = source
        if words[0].startswith('--from='):
            origin = stages[words.pop(0).split('=', 1)[1]].chroot.root
        *paths, target = words
        inside = self.chroot.path(os.path.join(self.folder, target))
        for path in paths:
            found = sorted(glob.glob(os.path.join(origin, path.lstrip('/'))))
            if not found:
                raise Failed(f'COPY {path}: no such file')
            for one in found:
                if os.path.isdir(one):
                    copy_source(one, inside)
                else:
                    os.makedirs(inside if target.endswith('/') else os.path.dirname(inside),
                                exist_ok=True)
                    shutil.copy(one, inside)

    def obey(self, word, rest, source, stages):
        if word == 'RUN':
            self.chroot.run('sh', '-c', rest, start=self.folder, env=self.env)
        elif word == 'COPY':
            self.copy(rest.split(), source, stages)
        elif word == 'WORKDIR':
            self.folder = rest
            os.makedirs(self.chroot.path(rest), exist_ok=True)
        elif word == 'ENV':
            self.env.update(part.split('=', 1) for part in rest.split())
        elif word == 'ENTRYPOINT':
            self.start = json.loads(rest)
        elif word == 'CMD':
            self.command = json.loads(rest)
        else:
            raise Failed(f'Containerfile: this test does not know {word}')

    def start_with(self, words=None):
        """Returns the output of the container, which runs as a user without a name and without
        rights, in a network of its own."""
        return self.chroot.run(*self.start, *(self.command if words is None else words),
                              start=self.folder, env=self.env, alone=True, user=USER)


def carry_out(source, folder):
    stages, stage = {}, None
    with open(os.path.join(source, 'Containerfile'), encoding='utf-8') as f:
        todo = instructions(f.read())
    chroots = []
    try:
        for word, rest in todo:
            if word == 'FROM':
                image, *name = rest.split()
                if image not in IMAGES:
                    raise Failed(f'Containerfile: this test does not know the image {image}')
                chroots.append(Chroot(folder, IMAGES[image], f'stage-{len(chroots)}').__enter__())
                stage = Stage(chroots[-1])
                stages[name[1] if name else str(len(chroots) - 1)] = stage
            else:
                stage.obey(word, rest, source, stages)
        if 'equal' not in stage.start_with():
            raise Failed('the container does not say what its demonstration found')
        if 'roost0' not in stage.start_with(['run', '--', 'ibv_devinfo']):
            raise Failed('the container shows no device')
    finally:
        for chroot in chroots:
            chroot.__exit__()
