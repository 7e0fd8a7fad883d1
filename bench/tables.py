# SPDX-License-Identifier: BSD-2-Clause
"""The rows of measurements of the key-value store, and of their tables in bench/RESULTS.md."""
import itertools
import statistics


def percentiles(got, *names):
    """Returns these percentiles (p50 and p99) of the delay of a client's run, for a row."""
    return {f'{p}_us': got[f'{p}_us'] for p in names or ('p50', 'p99')}


def figures(got, *names):
    """Returns the rate of a client's run and percentiles of its delay, for a row."""
    return {'rate': got['per_second'], **percentiles(got, *names)}


def median(values):
    """Returns the median of figures, or a dict of the medians of each figure. What does not differ
    is no figure."""
    if all(value == values[0] for value in values):
        return values[0]
    if isinstance(values[0], dict):
        return {key: median([value[key] for value in values]) for key in values[0]}
    return statistics.median(values)


def merge(runs):
    """Returns the rows of several runs as one, with the median of each figure."""
    return [median(rows) for rows in zip(*(r['rows'] for r in runs))]


def line(*cells):
    """Returns a line of a table."""
    return '|' + ''.join(f' {cell} |' if cell else ' |' for cell in cells)


def head(left, *names):
    """Returns the two lines above the rows of a table. `left` has a character for each of the first
    columns: l is aligned left, r is aligned right. The other columns are aligned right."""
    sides = itertools.islice(itertools.chain(left, itertools.repeat('r')), len(names))
    return line(*names), '|' + ''.join('---|' if side == 'l' else '---:|' for side in sides)
