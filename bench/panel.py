# SPDX-License-Identifier: BSD-2-Clause
"""Axes of the plots, with any sizes side by side, and lines in them."""
import math

from plot import GAP, HEIGHT, LEFT, TOP, WIDTH, line, text


class Panel:
    """Values from `low` on are logarithmic; from 0 on they are linear."""

    def __init__(self, index, title, sizes, low, high):
        self.x0 = LEFT + index * (WIDTH + GAP + LEFT)
        self.title, self.sizes, self.low, self.high = title, sizes, low, high

    def x(self, size):
        return self.x0 + (self.sizes.index(size) + 0.5) / len(self.sizes) * WIDTH

    def y(self, value):
        t = math.log(max(value, self.low) / self.low) / math.log(
            self.high / self.low) if self.low else value / self.high
        return TOP + HEIGHT - min(t, 1) * HEIGHT

    def ticks(self):
        if not self.low:
            return [self.high * i / 5 for i in range(6)]
        return [d * s for d in (0.1, 1, 10, 100, 1000, 10000) for s in (1, 2, 5)
                if self.low <= d * s <= self.high]

    def axes(self):
        yield (f'<rect x="{self.x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
               f'stroke="#222222"/>')
        yield text(self.x0, TOP - 12, self.title, size=13)
        for v in self.ticks():
            yield line(self.x0, self.y(v), self.x0 + WIDTH, self.y(v), '#dddddd')
            yield text(self.x0 - 6, self.y(v) + 4, f'{v:g}', 'end', size=10)

    def names(self):
        """The sizes, below the axis."""
        for size in self.sizes:
            yield text(self.x(size), TOP + HEIGHT + 16, str(size), 'middle', size=10)


def path(p, points, color, dash=''):
    """A line without marks."""
    d = f' stroke-dasharray="{dash}"' if dash else ''
    steps = ' '.join(f'{"L" if i else "M"}{p.x(s):.1f},{p.y(v):.1f}'
                     for i, (s, v) in enumerate(q for q in points if q[1] is not None))
    return f'<path d="{steps}" fill="none" stroke="{color}" stroke-width="1.8"{d}/>'


def entry(p, row, name, color, dash=''):
    """Line `row` of the legend below a panel."""
    y = TOP + HEIGHT + 36 + 15 * row
    yield line(p.x0, y, p.x0 + 24, y, color, 2, dash)
    yield text(p.x0 + 30, y + 4, name)


def svg(panels, below, lines):
    """A picture with a number of panels side by side, and space below."""
    width, height = LEFT + panels * (WIDTH + GAP + LEFT), TOP + HEIGHT + below
    return '\n'.join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif">', '<rect width="100%" height="100%" fill="#ffffff"/>', *lines,
        '</svg>']) + '\n'
