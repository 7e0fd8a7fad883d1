/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens a port from its specification: KIND[:ADDRESS][,OPTION=VALUE...]. A table of options parses
 * it, the kind opens the port, and wrappers are added:
 *
 *	core <-> pcap <-> faults <-> host, udp or shm
 *
 * The capture is on the side of the core, like tcpdump on a host with a bad link: it records all
 * packets that the core sends, and those that arrive.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "packet/headers.h"
#include "port/port_impl.h"

#define NS_PER_SEC 1000000000.0

enum value_kind {
	VALUE_PROBABILITY, /* double, 0 .. 1 */
	VALUE_TIME,	   /* uint64_t, ns; the unit is required */
	VALUE_SEED,	   /* uint64_t */
	VALUE_SIZE,	   /* uint32_t, bytes; the suffixes K, M and G are allowed */
	VALUE_MTU,	   /* uint32_t */
	VALUE_OFF,	   /* bool: true for 0 */
	VALUE_TEXT,	   /* char[256] */
};

static const struct {
	const char *name;
	enum value_kind kind;
	size_t offset;
	const char *wants;
} options[] = {
	{"loss", VALUE_PROBABILITY, offsetof(struct port_spec, faults.loss), "0 to 1"},
	{"dup", VALUE_PROBABILITY, offsetof(struct port_spec, faults.dup), "0 to 1"},
	{"reorder", VALUE_PROBABILITY, offsetof(struct port_spec, faults.reorder), "0 to 1"},
	{"corrupt", VALUE_PROBABILITY, offsetof(struct port_spec, faults.corrupt), "0 to 1"},
	{"delay", VALUE_TIME, offsetof(struct port_spec, faults.delay_ns), "0 to 10s, as in 5us"},
	{"seed", VALUE_SEED, offsetof(struct port_spec, faults.seed), "a number"},
	{"mtu", VALUE_MTU, offsetof(struct port_spec, mtu), "256, 512, 1024, 2048 or 4096"},
	{"window", VALUE_SIZE, offsetof(struct port_spec, window), "bytes, 4K to 1G"},
	{"buffer", VALUE_SIZE, offsetof(struct port_spec, buffer), "bytes, 4K to 1G"},
	{"ring", VALUE_SIZE, offsetof(struct port_spec, ring), "bytes, 4K to 1G"},
	{"offload", VALUE_OFF, offsetof(struct port_spec, no_offload), "0 or 1"},
	{"pcap", VALUE_TEXT, offsetof(struct port_spec, pcap),
	 "a file name of at most 255 bytes, %p for the process id"},
};

static const struct kind {
	const char *name;
	struct port *(*open)(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			     size_t errlen);
	void (*first_address)(struct pkt_addr *out);
} kinds[] = {
	{"host", host_open_port, udp_first_address},
	{"udp", udp_open_port, udp_first_address},
	{"shm", shm_open_port, shm_first_address},
};

static int __attribute__((format(printf, 3, 4)))
fail(char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/*
 * Parses digits with a decimal point. strtod() would depend on the locale of the program, and
 * accept signs, hexadecimal numbers and infinities.
 */
static bool parse_double(const char *text, double *out, char **end)
{
	double v = 0, scale = 1;
	const char *p = text;
	int digits = 0;

	for (; isdigit((unsigned char)*p); p++, digits++)
		v = v * 10 + (*p - '0');
	if (*p == '.') {
		for (p++; isdigit((unsigned char)*p); p++, digits++)
			v += (*p - '0') * (scale /= 10);
	}
	*out = v;
	*end = (char *)(uintptr_t)p;
	return digits > 0;
}

/* Checks the first digit, because strtoull() would accept blanks and signs. */
static bool parse_u64(const char *text, uint64_t *out, char **end)
{
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*out = strtoull(text, end, 0);
	return *end != text && errno == 0;
}

static bool parse_time(const char *text, uint64_t *out)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	double v;
	char *end;

	if (!parse_double(text, &v, &end))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].unit) == 0 && v * units[i].ns <= 10 * NS_PER_SEC) {
			*out = (uint64_t)(v * units[i].ns + 0.5);
			return true;
		}
	}
	if (*end == '\0' && v == 0) {
		*out = 0;
		return true;
	}
	return false;
}

static bool parse_size(const char *text, uint32_t *out)
{
	uint64_t v;
	char *end;
	unsigned shift = 0;

	if (!parse_u64(text, &v, &end) || v > 1u << 30)
		return false;
	if (*end) {
		const char *units = "KMG", *u = strchr(units, toupper((unsigned char)*end));

		if (!u || end[1])
			return false;
		shift = 10 * (unsigned)(u - units + 1);
	}
	v <<= shift;
	if (v < 4096 || v > 1u << 30)
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool parse_mtu(const char *text, uint32_t *out)
{
	uint64_t v;
	char *end;

	if (!parse_u64(text, &v, &end) || *end || v < 256 || v > PKT_MAX_PAYLOAD || !is_pow2(v))
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool parse_value(enum value_kind kind, const char *text, void *out)
{
	char *end;

	switch (kind) {
	case VALUE_PROBABILITY:
		return parse_double(text, out, &end) && !*end && *(double *)out <= 1;
	case VALUE_TIME:
		return parse_time(text, out);
	case VALUE_SEED:
		return parse_u64(text, out, &end) && !*end;
	case VALUE_SIZE:
		return parse_size(text, out);
	case VALUE_MTU:
		return parse_mtu(text, out);
	case VALUE_OFF:
		*(bool *)out = strcmp(text, "0") == 0;
		return *(bool *)out || strcmp(text, "1") == 0;
	case VALUE_TEXT:
		if (!*text || strlen(text) >= sizeof(((struct port_spec *)0)->pcap))
			return false;
		strcpy(out, text);
		return true;
	}
	return false;
}

static int parse_option(char *word, struct port_spec *spec, char *err, size_t errlen)
{
	char *value = strchr(word, '=');
	char known[128] = "";

	if (value)
		*value++ = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		if (strcmp(word, options[i].name) == 0) {
			if (value &&
			    parse_value(options[i].kind, value, (char *)spec + options[i].offset))
				return 0;
			return fail(err, errlen, "port option %s=%s: give it %s", word,
				    value ? value : "", options[i].wants);
		}
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? " " : "",
			 options[i].name);
	}
	return fail(err, errlen, "no port option '%s': there are %s", word, known);
}

bool port_is_kind(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(word, kinds[i].name) == 0)
			return true;
	}
	return false;
}

static const struct kind *kind_of(const struct port_spec *spec)
{
	size_t i = 0;

	while (strcmp(spec->kind, kinds[i].name) != 0)
		i++;
	return &kinds[i];
}

int port_spec_parse(const char *text, struct port_spec *spec, char *err, size_t errlen)
{
	char copy[512], *rest = copy, *word, *addr;

	memset(spec, 0, sizeof(*spec));
	spec->faults.seed = PORT_DEFAULT_SEED;
	if (strlen(text) >= sizeof(copy))
		return fail(err, errlen, "port specification longer than %zu bytes",
			    sizeof(copy) - 1);
	strcpy(copy, text);

	word = strsep(&rest, ",");
	addr = strchr(word, ':');
	if (addr)
		*addr++ = '\0';
	if (!port_is_kind(word))
		return fail(
			err, errlen,
			"no port kind '%s': write host, udp or shm, as in host, udp:127.0.0.2 or shm:10.0.0.1",
			word);
	strcpy(spec->kind, word);
	if (addr) {
		if (pkt_addr_parse(addr, &spec->addr))
			return fail(err, errlen,
				    "'%s' is no address: write %s:10.0.0.1 or %s:fd00::1", addr,
				    word, word);
		spec->has_address = true;
	}
	while ((word = strsep(&rest, ",")) != NULL) {
		int rc = parse_option(word, spec, err, errlen);

		if (rc)
			return rc;
	}
	return 0;
}

bool port_faults_any(const struct port_faults *f)
{
	return f->loss > 0 || f->dup > 0 || f->reorder > 0 || f->corrupt > 0 || f->delay_ns > 0;
}

uint32_t port_mtu_fit(uint32_t bytes, uint32_t limit)
{
	uint32_t mtu = PKT_MAX_PAYLOAD;

	while (mtu >= 256 &&
	       (mtu + PKT_MAX_HEADERS + PKT_ICRC_LEN > bytes || (limit && mtu > limit)))
		mtu /= 2;
	return mtu >= 256 ? mtu : 0;
}

uint64_t port_clock(void *ctx)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int port_first_address(const char *text, struct pkt_addr *out)
{
	struct port_spec spec;
	char err[256];

	memset(out, 0, sizeof(*out));
	if (port_spec_parse(text, &spec, err, sizeof(err)))
		return -EINVAL;
	if (spec.has_address)
		*out = spec.addr;
	else
		kind_of(&spec)->first_address(out);
	return 0;
}

struct port *port_open(const char *text, unsigned lane, unsigned lanes, char *err, size_t errlen)
{
	struct port_spec spec;
	struct port *p, *wrapped;

	if (errlen)
		err[0] = '\0';
	if (lanes < 1 || lanes > PORT_MAX_LANES || lane >= lanes) {
		errno = -fail(err, errlen, "port lane %u of %u: at most %d lanes", lane, lanes,
			      PORT_MAX_LANES);
		return NULL;
	}
	if (port_spec_parse(text, &spec, err, errlen)) {
		errno = EINVAL;
		return NULL;
	}
	p = kind_of(&spec)->open(&spec, lane, lanes, err, errlen);
	if (!p)
		return NULL;
	if (port_faults_any(&spec.faults)) {
		/* Lanes with the same seed would lose their packets at the same time. */
		spec.faults.seed += lane;
		wrapped = fault_wrap(p, &spec.faults, NULL, NULL);
		if (!wrapped) {
			int rc = errno;

			fail(err, errlen, "fault injection: %s", strerror(rc));
			port_close(p);
			errno = rc;
			return NULL;
		}
		p = wrapped;
	}
	if (spec.pcap[0]) {
		wrapped = pcap_wrap(p, spec.pcap, NULL, NULL, err, errlen);
		if (!wrapped) {
			port_close(p);
			errno = EINVAL;
			return NULL;
		}
		p = wrapped;
	}
	return p;
}
