#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the commands of docs/guide-kv.md from the first to the last, in a network of its own that
has the addresses of the guide's machines. Each command must succeed, say nothing on stderr, and
print what EXPECTED has for it. Nodes end with their section. Where the guide sleeps for a second,
the test waits until the nodes serve; a command behind the start of a node needs that.

Arguments: ROOST BUILD-FOLDER. The exit status is 77 if a program that the guide uses is missing, or
without the rights for a network of its own; with ROOST_INTEROP=required in the environment it is
then 1. Without etcd, or roost-etcd.so, the commands of etcd alone are left out.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

from cli import LIMIT, ROOST, check, finish, ip, own_network, skip
from parts import until
from skip import required

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from namespaces import Missing  # noqa: E402
from output import read_output  # noqa: E402
from ports import listens  # noqa: E402

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
BUILD = os.path.abspath(sys.argv[2])
COMMAND = re.compile(r'(?:roost|mem\w+|echo|sleep|cc) ')
MACHINES = ['10.0.0.1', '10.0.0.2', '10.0.0.9']  # of the part with etcd, which is on the last one
HAS_ETCD = shutil.which('etcd') and os.path.exists(os.path.join(BUILD, 'lib', 'roost-etcd.so'))
NOTHING = r'\A\Z'
# What each command of the guide prints, in the guide's order: (part of the command, pattern).
EXPECTED = {
    'A key-value store in two commands': [
        ('memcstat', 'curr_items: 0\n'), ('echo hello', NOTHING), ('memccp', NOTHING),
        ('memccat', r'\Ahello\n')],
    'By RDMA': [
        ('put 127.0.0.2 colour', NOTHING), ('get 127.0.0.2 colour', r'\Agreen\n\Z'),
        ('put 127.0.0.2 picture', NOTHING), ('get 127.0.0.2 picture', NOTHING),
        ('incr', r'\A1\n\Z'), ('scan', '^colour\tgreen$'), ('stat', r'^pairs +3$'),
        ('top', r'^ +3 '), ('bench', 'million operations a second')],
    'Settings for known sizes': [('kv tune', r'serve it +roost node --kv \d+ --kv-index \d+')],
    'Snapshots': [('kv snapshot', NOTHING)],
    'Several nodes': [
        ('table parts 16', NOTHING), ('put colour', NOTHING), ('get colour', r'\Agreen\n\Z'),
        ('parts stat', r'^pairs +1\n[\s\S]*^partitions +16\n[\s\S]*^lost +0$'),
        ('move parts 3 127.0.0.4', NOTHING),
        ('table etcd:', NOTHING), ('put colour', NOTHING),
        ('--lost --snapshot', NOTHING)],
    'Functions': [('cc -shared', NOTHING), ('put 127.0.0.2 v', NOTHING), ('reduce', r'\A14\n\Z')],
}


def sections():
    """Returns [(title, text)] of the guide."""
    with open(os.path.join(TOP, 'docs', 'guide-kv.md'), encoding='utf-8') as f:
        parts = re.split(r'^#+ (.*)\n', f.read(), flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def commands(text):
    lines = [line[4:] for line in text.splitlines() if line.startswith('    ')]
    return [line for line in lines if COMMAND.match(line)]


def program(text, word):
    """Returns the lines of the indented block that has the word."""
    block = next(b for b in re.split(r'\n\n(?=\S)', text) if re.search(rf'^    .*{word}', b, re.M))
    lines = [line[4:] for line in block.splitlines() if line.startswith('    ') or not line]
    return ''.join(f'{line}\n' for line in lines if not COMMAND.match(line))


class Shell:
    """Runs the commands of a section in a folder, as a reader does in a terminal."""

    def __init__(self, folder):
        self.folder, self.nodes, self.waiting = folder, {}, False

    def run(self, command):
        """Returns what a command in the foreground prints. `top` gets Ctrl-C when it has printed a
        line of figures."""
        if ' top ' in command:
            return self.interrupt(command)
        if ' bench ' in command:
            command += ' --duration 0.1 --keys 1k'
        r = subprocess.run(['bash', '-c', command], cwd=self.folder, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, errors='replace', timeout=LIMIT,
                           check=False)
        check(f'{command}: it succeeds without a complaint', not r.returncode and not r.stderr, r)
        return r.stdout

    def interrupt(self, command):
        with subprocess.Popen(['bash', '-c', f'exec {command}'], cwd=self.folder, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as p:
            said = p.stdout.readline() + p.stdout.readline()
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=LIMIT)
        return said

    def start(self, command):
        """Starts a node."""
        address = re.search(r'udp:(\S+)|$', command)[1]
        said = tempfile.TemporaryFile('w+')
        process = subprocess.Popen(['bash', '-c', f'exec {command.rstrip("& ")}'], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        self.nodes[address] = process, said, command
        self.waiting = True

    def sleep(self):
        """Waits until the nodes serve, where the reader waits for a second."""
        self.waiting = False
        for process, said, command in self.nodes.values():
            def serves(process=process, said=said, command=command):
                return process.poll() is not None or (
                    'service 4792' in read_output(said)
                    and ('--memcached' not in command or listens(11211)))
            until(f'{command}: it serves', serves)
            check(f'{command}: it runs: {read_output(said)}', process.poll() is None)

    def kill(self, address):
        process, said, _ = self.nodes.pop(address)
        process.kill()
        process.wait()
        said.close()

    def kill_all(self):
        for address in list(self.nodes):
            self.kill(address)

    def end(self):
        """Ends the nodes, which must have printed their line alone."""
        for process, said, command in self.nodes.values():
            process.terminate()
            try:
                status = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                status = 'still running'
            text = read_output(said)
            check(f'{command}: it ends well: {status}\n{text}',
                  status == 0 and text.count('\n') == 1)


class Several:
    """What happens between the commands of "Several nodes": a node dies, a second machine."""

    def __init__(self, shell):
        self.shell, self.key, self.etcd = shell, '', None

    def start(self, command):
        if '127.0.0.4' in command:
            command = command.replace(' &', ' --snapshot FILE &')
        self.shell.start(command)
        if '10.0.0.1' in command:  # "The second command runs on each node."
            self.shell.start(command.replace(*MACHINES[:2]))

    def before(self, command):
        if 'table etcd:' in command:
            self.etcd = start_etcd(self.shell.folder)
        elif '--lost' in command:
            self.lose()

    def after(self, command):
        if '--lost' in command:
            self.is_there('the pairs of the snapshot')
            check('the table says what was lost',
                  re.search('^lost [0-9]+ 3$', self.shell.run('roost kv table parts'), re.M))
        elif 'move parts 3' in command:
            self.put()

    def put(self):
        """Puts pairs until one is in the partition of the node that was added."""
        for i in range(10000):
            self.key = f'key{i}'
            self.shell.run(f'roost kv --partitions parts put {self.key} here')
            if self.shell.run('roost kv scan 127.0.0.4'):
                return
        check('pairs at the node that was added', False)

    def is_there(self, what):
        check(what, self.shell.run(f'roost kv --partitions parts get {self.key}') == 'here\n')

    def lose(self):
        """Kills the node with the partition after a snapshot. It is started and used again, as the
        text says, and then killed for good."""
        shell = self.shell
        command = shell.nodes['127.0.0.4'][2]
        shell.run('roost kv snapshot 127.0.0.4')
        shell.kill('127.0.0.4')
        shell.start(command)
        shell.sleep()
        shell.run('roost kv move parts 3 127.0.0.4 --lost')
        self.is_there('a node that was started again has the pairs of its snapshot')
        shell.kill('127.0.0.4')

    def end(self):
        if self.etcd:
            self.etcd.kill()
            self.etcd.wait()


def start_etcd(folder):
    """Starts etcd on the last of the machines. Returns the process when it answers."""
    client, peer = (f'http://{MACHINES[-1]}:{port}' for port in (2379, 2380))
    with open(os.path.join(folder, 'etcd.log'), 'wb') as log:
        process = subprocess.Popen(
            ['etcd', '--name', 'one', '--data-dir', os.path.join(folder, 'etcd'),
             '--listen-client-urls', client, '--advertise-client-urls', client,
             '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer,
             '--initial-cluster', f'one={peer}'], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def answers():
        try:
            with urllib.request.urlopen(f'{client}/health', timeout=LIMIT) as answer:
                return b'true' in answer.read()
        except OSError:
            return False
    until('etcd answers', answers)
    return process


def run_section(title, text, folder):
    shell = Shell(folder)
    several = Several(shell)
    expected = list(EXPECTED.get(title, ()))
    try:
        for command in commands(text):
            if 'etcd:' in command and not HAS_ETCD:
                if expected and not command.endswith('&'):
                    expected.pop(0)
            elif command.endswith('&'):
                several.start(command)
            elif command.startswith('sleep'):
                shell.sleep()
            else:
                check(f'{command}: the guide waits for the nodes before it', not shell.waiting)
                part, pattern = expected.pop(0) if expected else ('no command', NOTHING)
                check(f'{command}: the test expects {part}', part in command)
                several.before(command)
                said = shell.run(command)
                check(f'{command}: it prints {pattern}, not {said[:1000]!r}',
                      re.search(pattern, said, re.M))
                several.after(command)
        check(f'{title}: the guide has all commands: {expected}', not expected)
        shell.end()
    finally:
        several.end()
        shell.kill_all()


def prepare(folder):
    """Makes the files that the guide takes for granted: the reader's, and what is installed."""
    os.mkdir(os.path.join(folder, 'bin'))
    os.symlink(os.path.abspath(ROOST), os.path.join(folder, 'bin', 'roost'))
    with open(os.path.join(folder, 'roost.pc'), 'w', encoding='utf-8') as f:
        f.write(f'Name: roost\nDescription: its headers\nVersion: 0\nCflags: -I{TOP}/include\n')
    with open(os.path.join(folder, 'picture.png'), 'wb') as f:
        f.write(bytes(range(256)) * 100)
    os.environ.update(PATH=f'{folder}/bin:{os.environ["PATH"]}', PKG_CONFIG_PATH=folder,
                      ROOST_LIBDIR=os.path.join(BUILD, 'lib'), ROOST_SHM_DIR=f'{folder}/nics')
    os.mkdir(f'{folder}/nics', 0o700)
    os.environ.pop('ROOST_PORT', None)


def main():
    found = dict(sections())
    check('the guide has the sections', set(EXPECTED) <= set(found))
    check('the test has the sections with commands',
          all(title in EXPECTED for title, text in found.items() if commands(text)))
    with tempfile.TemporaryDirectory(prefix='roost-guide-') as folder:
        prepare(folder)
        with open(os.path.join(folder, 'squares.c'), 'w', encoding='utf-8') as f:
            f.write(program(found['Functions'], 'squares'))
        for title in EXPECTED:
            run_section(title, found[title].replace('/var/tmp/', f'{folder}/'), folder)
        with open(os.path.join(folder, 'picture.png'), 'rb') as one, \
                open(os.path.join(folder, 'copy.png'), 'rb') as two:
            check('copy.png is picture.png', one.read() == two.read())


own_network()
for needed in ('memcstat', 'cc', 'pkg-config'):
    if not shutil.which(needed):
        skip(f'no {needed}: scripts/setup check installs it')
try:
    for machine in MACHINES:
        ip('addr', 'add', f'{machine}/32', 'dev', 'lo')
except (Missing, OSError) as e:
    skip(f'no addresses of the guide\'s machines: {e}')
main()
if not HAS_ETCD:
    check('the commands of etcd ran', not required())
    print('SKIPPED: the commands of etcd: no etcd, or no roost-etcd.so')
finish()
