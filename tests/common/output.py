# SPDX-License-Identifier: BSD-2-Clause
"""The output of a running program in a file."""
import os


def read_output(file):
    """Returns the text in a file to which programs write. They share the file's offset, and a seek
    would make them overwrite their own output, so this reads without the offset."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")
