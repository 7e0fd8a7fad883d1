# SPDX-License-Identifier: BSD-2-Clause
"""A table of partitions in a file, which a test replaces, and the nodes that follow it."""
import os

from cli import last_json, run
from node import Node, addresses
from parts import until

PARTITIONS = 16

where = addresses('shm')
other = '10.0.0.3'


def kv(*args):
    return run('kv', '--port', f'shm:{where[1]}', '--timeout', '60', *args)


def node(address, table, *args):
    return Node(f'shm:{address}', '--kv', '256M', '--kv-partitions', table, *args)


def stat(*args):
    return last_json(kv(*args, '--json')) or {}


def replace(table, version, owners, partitions=PARTITIONS, moves=''):
    """A new version of the table: `owners` has a list of ranges for each node, `moves` the lines of
    partitions that move."""
    with open(table) as f:
        lines = f.read().split('\n')
    seed = next(line for line in lines if line.startswith('seed '))
    nodes = ''.join(f'node {a} 4792 {ranges}\n' for a, ranges in owners.items())
    with open(f'{table}.next', 'w') as f:
        f.write(f'roost-kv-partitions 1\nversion {version}\n{seed}\npartitions {partitions}\n'
                f'{nodes}{moves}end\n')
    os.rename(f'{table}.next', table)


def serves(address, version):
    return until(f'{address} serves version {version}',
                 lambda: stat('stat', address).get('table_version') == version)


def ended(clients):
    """Returns whether a client has ended by an error: the load then does not continue."""
    return any(c.process.poll() is not None for c in clients)
