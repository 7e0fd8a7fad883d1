/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors that the network reports for sent packets: ICMP errors, which Linux keeps with a
 * quotation of the packet (ip(7), IP_RECVERR). Any host may have forged them, in any number. The
 * port uses two kinds. "No socket has port 4791" becomes a hint; the reader of the hint decides by
 * the quotation whether this NIC sent the packet. "The packet is too long for the path" is logged
 * once and has no other effect.
 */
#include <errno.h>
#include <time.h>

/* after <time.h>, which it needs */
#include <linux/errqueue.h>

#include "base/sys.h"
#include "port/udp.h"

#define ERRORS_MOST 64 /* errors read at a time; the next failing call reads more */

/*
 * Each error makes a call on the socket fail, ends a batch of a send, and needs a call of its own
 * to be read. Answers to forged addresses of this machine cost three times as much with errors as
 * without. If this many errors come in this time, Linux keeps none for the rest of the time
 * (ip(7): it then reports no errors of an unconnected socket). Meanwhile there are no hints of
 * closed ports, and peers that are gone are detected by their silence.
 */
#define ERRORS_READ_MAX 256
#define SLICE_NS	100000000u

int udp_set_recverr(const struct udp_port *u, int fd, bool enable)
{
	int on = enable;

	return sys_setsockopt(fd, u->v6 ? SOL_IPV6 : SOL_IP, u->v6 ? IPV6_RECVERR : IP_RECVERR, &on,
			      sizeof(on));
}

static void count_error(struct udp_port *u)
{
	uint64_t now = port_clock(NULL);

	if (now - u->errors_since >= SLICE_NS) {
		u->errors_since = now;
		u->errors = 0;
	}
	if (++u->errors >= ERRORS_READ_MAX)
		u->errors_off = udp_set_recverr(u, u->out, false) == 0;
}

void udp_resume_errors(struct udp_port *u)
{
	if (port_clock(NULL) - u->errors_since >= SLICE_NS)
		u->errors_off = udp_set_recverr(u, u->out, true) != 0;
}

/* Returns the error in the control data, or NULL if none came from the network. */
static const struct sock_extended_err *find_error(struct msghdr *h)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		const struct sock_extended_err *e = (const void *)CMSG_DATA(c);

		if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
		    (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR))
			return e->ee_origin == SO_EE_ORIGIN_ICMP ||
					       e->ee_origin == SO_EE_ORIGIN_ICMP6
				       ? e
				       : NULL;
	}
	return NULL;
}

static void handle_error(struct udp_port *u, struct msghdr *h, const struct sock_extended_err *e,
			 const void *quoted, ssize_t len)
{
	struct port_hint hint = {.quotes = true};
	uint16_t port;

	if (h->msg_namelen != udp_name_len(u))
		return;
	udp_addr(h->msg_name, &hint.dst, &port);
	if (e->ee_errno == EMSGSIZE)
		udp_path_too_long(u, &hint.dst, e->ee_info);
	if (e->ee_errno != ECONNREFUSED || port != PKT_UDP_PORT ||
	    len < (ssize_t)sizeof(struct pkt_bth))
		return;
	port_quote(&hint, quoted, (size_t)len);
	port_add_hint(&u->port, &hint);
	/*
	 * The next program there may be another user's: udp_path_get(). QP 1 looks for the path of
	 * each datagram, so any user could cause these errors, at the cost of all other paths.
	 */
	u->port.path_generation += hint.dqpn > PKT_GSI_QPN && pkt_addr_is_loopback(&hint.dst);
}

bool udp_take_errors(struct udp_port *u)
{
	const struct sock_extended_err *e;
	bool found = false;
	char control[512] __attribute__((aligned(8)));
	uint8_t quoted[PORT_QUOTE_LEN];
	union udp_name name;

	for (int n = 0; n < ERRORS_MOST && !u->errors_off; n++) {
		struct iovec iov = {quoted, sizeof(quoted)};
		struct msghdr h = {
			.msg_name = &name,
			.msg_namelen = sizeof(name),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = sizeof(control),
		};
		ssize_t len = sys_recvmsg(u->out, &h, MSG_ERRQUEUE | MSG_DONTWAIT);

		if (len < 0)
			break;
		e = find_error(&h);
		if (!e)
			continue;
		handle_error(u, &h, e, quoted, len);
		found = true;
		count_error(u);
	}
	u->errors_read |= found;
	return found;
}
