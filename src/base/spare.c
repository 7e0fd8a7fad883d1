/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/spare.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>

#include "base/sys.h"

int spare_open(void)
{
	return sys_open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool spare_needed(int rc)
{
	return rc == -EMFILE || rc == -ENFILE;
}

void spare_refuse(int listener, int *spare)
{
	int fd;

	if (*spare >= 0)
		sys_close(*spare);
	fd = sys_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		sys_close(fd);
	*spare = spare_open();
}
