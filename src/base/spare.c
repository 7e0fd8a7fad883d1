/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/spare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/sys.h"

int spare_open(void)
{
	return sys_open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static enum spare_result accept_one(int listener, int flags, int *fd)
{
	*fd = sys_accept4(listener, NULL, NULL, flags | SOCK_CLOEXEC);
	if (*fd >= 0)
		return SPARE_ACCEPTED;
	return *fd == -EAGAIN || *fd == -EINTR || *fd == -ECONNABORTED ? SPARE_NOTHING : SPARE_REST;
}

/* Closes the spare descriptor, and accepts and hangs up with its number. */
static enum spare_result refuse(int listener, int *spare)
{
	enum spare_result result;
	int fd;

	sys_close(*spare);
	*spare = -1;
	result = accept_one(listener, 0, &fd);
	if (result != SPARE_ACCEPTED)
		return result;
	sys_close(fd);
	return SPARE_REFUSED;
}

enum spare_result spare_accept(int listener, int flags, int *spare, int *fd)
{
	enum spare_result result = accept_one(listener, flags, fd);

	if (spare && *spare >= 0 && (*fd == -EMFILE || *fd == -ENFILE))
		result = refuse(listener, spare);
	if (spare && *spare < 0)
		*spare = spare_open();
	return result;
}
