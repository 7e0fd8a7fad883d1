# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-sweep.svg: goodput, message rate and latency over the message size, from the sweeps in
bench/results.

Beside our curves are figures of the FPGA NICs that Roost follows, from their papers. The machines
and links differ: the figures show the limits of such a NIC, and are no comparison.
"""
import math

import report

SERIES = [
    ('sweep-shm-write', 'shm WRITE', '#1b6ca8', ''),
    ('sweep-shm-read', 'shm READ', '#1b6ca8', '5 3'),
    ('sweep-udp-write', 'udp WRITE', '#c8553d', ''),
    ('sweep-udp-read', 'udp READ', '#c8553d', '5 3'),
]

# StRoM (EuroSys 2020), figures 5 and 12: the 10 G and 100 G NICs reach line rate from 2 to 4 KiB.
# The thesis on 100 G: line rate from 1 KiB, READ 4 to 4.5 us, WRITE 3.5 to 4 us, 17.5 to 20 M
# messages a second.
PAPERS = '#777777'

WIDTH, HEIGHT, LEFT, TOP, GAP = 430, 330, 64, 54, 40
SIZE_FROM, SIZE_TO = 64, 4 << 20


class Panel:
    """One set of axes, both logarithmic."""

    def __init__(self, index, title, unit, low, high):
        self.x0 = LEFT + index * (WIDTH + LEFT + GAP)
        self.title, self.unit, self.low, self.high = title, unit, low, high

    def x(self, size):
        t = math.log2(size / SIZE_FROM) / math.log2(SIZE_TO / SIZE_FROM)
        return self.x0 + t * WIDTH

    def y(self, value):
        t = math.log10(min(max(value, self.low), self.high) / self.low) / math.log10(
            self.high / self.low)
        return TOP + HEIGHT - t * HEIGHT


def text(x, y, s, anchor='start', color='#222222', size=11, extra=''):
    s = s.replace('&', '&amp;').replace('<', '&lt;')
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
            f'font-size="{size}"{extra}>{s}</text>')


def line(x1, y1, x2, y2, color, width=1.0, dash=''):
    d = f' stroke-dasharray="{dash}"' if dash else ''
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="{width}"{d}/>')


def axes(p):
    yield (f'<rect x="{p.x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
           f'stroke="#222222"/>')
    yield text(p.x0, TOP - 12, f'{p.title}, {p.unit}', size=13)
    size = SIZE_FROM
    while size <= SIZE_TO:
        yield line(p.x(size), TOP, p.x(size), TOP + HEIGHT, '#eeeeee')
        yield text(p.x(size), TOP + HEIGHT + 16, report.size_text(size), 'middle', size=10)
        size *= 4
    decade = p.low
    while decade <= p.high * 1.001:
        yield line(p.x0, p.y(decade), p.x0 + WIDTH, p.y(decade), '#dddddd')
        yield text(p.x0 - 6, p.y(decade) + 4, f'{decade:g}', 'end', size=10)
        decade *= 10


def curve(p, points, color, dash):
    path = ' '.join(f'{"L" if i else "M"}{p.x(s):.1f},{p.y(v):.1f}'
                    for i, (s, v) in enumerate(points))
    d = f' stroke-dasharray="{dash}"' if dash else ''
    yield f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.8"{d}/>'
    for s, v in points:
        yield f'<circle cx="{p.x(s):.1f}" cy="{p.y(v):.1f}" r="2.2" fill="{color}"/>'


def band(p, low, high, label, x_from=SIZE_FROM, x_to=SIZE_TO):
    top, bottom = p.y(high), p.y(low)
    yield (f'<rect x="{p.x(x_from):.1f}" y="{top:.1f}" width="{p.x(x_to) - p.x(x_from):.1f}" '
           f'height="{max(bottom - top, 1.5):.1f}" '
           f'fill="{PAPERS}" fill-opacity="0.25"/>')
    yield text(p.x(x_to) + 6, (top + bottom) / 2 + 4, label, 'start', PAPERS, 10)


def papers_goodput(p):
    """Line rates, drawn from the size at which the paper's NIC reaches them."""
    for rate, start, above, label in (
            (10, 2 << 10, 14, '10 G NIC (StRoM, from 2 to 4 KiB)'),
            (100, 1 << 10, -5, '100 G NICs (thesis from 1 KiB, StRoM from 2 to 4 KiB)')):
        yield line(p.x(start), p.y(rate), p.x(SIZE_TO), p.y(rate), PAPERS, 1.4, '2 3')
        yield (f'<circle cx="{p.x(start):.1f}" cy="{p.y(rate):.1f}" r="3" fill="none" '
               f'stroke="{PAPERS}"/>')
        yield text(p.x(SIZE_TO) - 4, p.y(rate) + above, label, 'end', PAPERS, 10)


def legend(shown):
    x = LEFT
    y = TOP + HEIGHT + 44
    for _, label, color, dash in shown:
        yield line(x, y - 4, x + 28, y - 4, color, 2, dash)
        yield text(x + 34, y, label)
        x += 130
    yield text(x, y,
               'gray: figures of the papers, on their own hardware; bars on latency: p1 to p99',
               color=PAPERS)


def write(folder, path):
    data = {name: report.load(folder, name).get('rows') for name, *_ in SERIES}
    shown = [s for s in SERIES if data[s[0]]]
    if not shown:
        return
    goodput = Panel(0, 'goodput', 'Gbit/s', 0.1, 1000)
    rate = Panel(1, 'message rate', 'million a second', 0.0001, 100)
    lat = Panel(2, 'latency', 'us: p50, WRITE half a round trip, READ to completion', 0.1, 10000)
    total = LEFT + 3 * (WIDTH + LEFT + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {TOP + HEIGHT + 60}" '
           f'font-family="sans-serif">', '<rect width="100%" height="100%" fill="#ffffff"/>']
    for p in (goodput, rate, lat):
        out += axes(p)
    out += papers_goodput(goodput)
    out += band(rate, 17.5, 20, '100 G thesis: 17.5 to 20 M/s, small messages', SIZE_FROM, 1 << 10)
    out += band(lat, 3.5, 4.5, '100 G thesis: WRITE 3.5 to 4, READ 4 to 4.5 us, small messages',
                SIZE_FROM, 1 << 10)
    for name, _, color, dash in shown:
        rows = data[name]
        out += curve(goodput, [(r['size'], r['goodput_gbps']) for r in rows], color, dash)
        out += curve(rate, [(r['size'], r['msg_rate'] / 1e6) for r in rows], color, dash)
        out += curve(lat, [(r['size'], r['latency_us']['p50']) for r in rows], color, dash)
        for r in rows:
            out.append(line(lat.x(r['size']), lat.y(r['latency_us']['p1']), lat.x(r['size']),
                            lat.y(r['latency_us']['p99']), color, 0.7))
    out += legend(shown)
    out.append('</svg>')
    with open(path, 'w', encoding='utf-8') as f:
        f.write('\n'.join(out) + '\n')
