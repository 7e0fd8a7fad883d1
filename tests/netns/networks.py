# SPDX-License-Identifier: BSD-2-Clause
"""Two network namespaces and a cable between them, for the tests of this folder."""
import os
import shutil

import namespaces
from namespaces import PATH, Missing, ip

NO_RIGHTS = ['setpriv', '--bounding-set=-all', '--inh-caps=-all', '--no-new-privs']
ADDRESSES = {4: ('10.99.0.1', '10.99.0.2'), 6: ('fd99::1', 'fd99::2')}


class Networks:
    """Two namespaces, and a pair of veth devices that connects them."""

    def __init__(self):
        if os.geteuid() != 0:
            raise Missing('not root: network namespaces take CAP_SYS_ADMIN')
        for tool in ('ip', 'setpriv'):
            if not shutil.which(tool, path=PATH):
                raise Missing(f'no program {tool}')
        self.names = [f'roost{side}{os.getpid()}' for side in 'ab']
        try:
            for name in self.names:
                ip('netns', 'add', name)
            ip('link', 'add', 'v0', 'netns', self.names[0], 'type', 'veth', 'peer', 'name', 'v0',
               'netns', self.names[1])
            for i, name in enumerate(self.names):
                ip('-n', name, 'addr', 'add', ADDRESSES[4][i] + '/24', 'dev', 'v0')
                ip('-n', name, 'addr', 'add', ADDRESSES[6][i] + '/64', 'dev', 'v0', 'nodad')
                for link in ('lo', 'v0'):
                    ip('-n', name, 'link', 'set', link, 'up')
        except BaseException:
            self.remove()
            raise

    def remove(self):
        namespaces.remove(self.names)
