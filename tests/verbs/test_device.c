/* SPDX-License-Identifier: BSD-2-Clause */
/* The device and its attributes, and objects that belong to no QP: contexts, PDs, MRs. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs/sysfs.h"

/* Exported, but not declared in a public header. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		       int *type);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
const char *ibv_get_sysfs_path(void);

/* From rdma-core 65's headers, under names that a newer header does not have. */
struct mr_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};
struct ibv_mr *reg_mr_ex(struct ibv_pd *pd, struct mr_attr *attr) __asm__("ibv_reg_mr_ex");
int query_port_speed(struct ibv_context *context, uint32_t port_num,
		     uint64_t *speed) __asm__("ibv_query_port_speed");

/* Sets ROOST_PORT for a test. Returns the old value, for put_port_back(). */
static char *set_port(const char *spec)
{
	char *before = getenv("ROOST_PORT");

	before = before ? strdup(before) : NULL;
	setenv("ROOST_PORT", spec, 1);
	return before;
}

static void put_port_back(char *before)
{
	if (before)
		setenv("ROOST_PORT", before, 1);
	else
		unsetenv("ROOST_PORT");
	free(before);
}

static void list_without_engine(void **state)
{
	/* A port that cannot be opened: listing does not open it. */
	char *before = set_port("nonsense:1.2.3.4");
	struct ibv_device **list;
	int n = -1;

	list = ibv_get_device_list(&n);
	assert_non_null(list);
	assert_int_equal(n, 1);
	assert_null(list[1]);
	assert_string_equal(ibv_get_device_name(list[0]), "roost0");
	assert_int_equal(list[0]->node_type, IBV_NODE_CA);
	assert_int_equal(list[0]->transport_type, IBV_TRANSPORT_IB);
	assert_true(ibv_get_device_guid(list[0]) != 0);
	errno = 0;
	assert_null(ibv_open_device(list[0]));
	assert_true(errno != 0);
	ibv_free_device_list(list);
	put_port_back(before);
}

static void guid_from_address(void **state)
{
	const uint8_t want[8] = {0x02, 0x52, 0x6f, 0x73, 127, 1, 2, 3};
	struct ibv_device **list = ibv_get_device_list(NULL);
	char *before = set_port("udp:127.1.2.3,loss=0.1");
	uint64_t guid;

	guid = ibv_get_device_guid(list[0]);
	assert_memory_equal(&guid, want, 8);
	ibv_free_device_list(list);
	put_port_back(before);
}

/*
 * A program that lists devices gets the same GUID as one that opens them, whichever address is
 * free.
 */
static void guid_before_and_after(void **state)
{
	char *before = set_port("shm");
	struct ibv_device **list = ibv_get_device_list(NULL);
	uint64_t guid = ibv_get_device_guid(list[0]);
	struct ibv_context *ctx;
	struct ibv_device_attr a;

	put_port_back(before);
	before = set_port("shm:10.9.8.7");
	ctx = ibv_open_device(list[0]);
	assert_non_null(ctx);
	put_port_back(before);
	before = set_port("shm");
	assert_int_equal(ibv_query_device(ctx, &a), 0);
	assert_true(a.node_guid == guid);
	assert_true(a.sys_image_guid == guid);
	assert_true(ibv_get_device_guid(list[0]) == guid);
	assert_int_equal(ibv_close_device(ctx), 0);
	ibv_free_device_list(list);
	put_port_back(before);
}

static void sysfs_text(const char *name, const char *want)
{
	char path[128], text[4096];

	snprintf(path, sizeof(path), "/sys/class/infiniband/roost0/%s", name);
	assert_int_equal(roost_sysfs(path, text, sizeof(text)), ROOST_SYSFS_TEXT);
	assert_string_equal(text, want);
}

/* The files show the open NIC, even if the environment has changed. */
static void sysfs_of_open_nic(void **state)
{
	char *before = set_port("shm:10.9.8.7"), text[4096];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	sysfs_text("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a09:0807\n");
	ctx = ibv_open_device(list[0]);
	assert_non_null(ctx);
	ibv_free_device_list(list);
	put_port_back(before);
	before = set_port("udp:127.0.0.1");
	sysfs_text("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a09:0807\n");
	sysfs_text("ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	sysfs_text("ports/1/gid_attrs/types/0", "RoCE v2\n");
	assert_int_equal(roost_sysfs("/sys/class/infiniband/roost0/ports/1/gid_attrs/types/1", text,
				     sizeof(text)),
			 -EINVAL);
	/* shm addresses belong to no interface. */
	assert_int_equal(roost_sysfs("/sys/class/infiniband/roost0/ports/1/gid_attrs/ndevs/0", text,
				     sizeof(text)),
			 -EINVAL);
	assert_int_equal(
		roost_sysfs("/sys/class/infiniband/roost0/ports/1/gids/0x", text, sizeof(text)),
		ROOST_SYSFS_OTHER);
	assert_int_equal(roost_sysfs("/sys/class/infiniband/mlx5_0/node_guid", text, sizeof(text)),
			 ROOST_SYSFS_OTHER);
	assert_int_equal(ibv_close_device(ctx), 0);
	sysfs_text("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
	sysfs_text("ports/1/gid_attrs/ndevs/0", "lo\n");
	put_port_back(before);
}

/* Redirects stderr to a file until end_capture(). */
static int saved_stderr;

static void begin_capture(int *file)
{
	*file = memfd_create("stderr", 0);
	saved_stderr = dup(2);
	assert_int_equal(dup2(*file, 2), 2);
}

static void end_capture(int file, char *text, size_t n)
{
	ssize_t got = pread(file, text, n - 1, 0);

	dup2(saved_stderr, 2);
	close(saved_stderr);
	close(file);
	assert_true(got >= 0);
	text[got] = '\0';
}

/* Users of other devices pass -x 3. One line for each process names the right index. */
static void wrong_gid_index(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh.sgid_index = 3};
	union ibv_gid gid;
	char text[1024];
	int file;

	begin_capture(&file);
	assert_null(ibv_create_ah(pd, &attr));
	assert_int_equal(ibv_query_gid(ctx, 1, 3, &gid), -1);
	end_capture(file, text, sizeof(text));
	assert_non_null(strstr(text, "no GID of index 3"));
	assert_non_null(strstr(text, "name index 0"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void device_attributes(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_device_attr a;
	struct ibv_device_attr_ex ex;

	assert_int_equal(ibv_query_device(ctx, &a), 0);
	assert_int_equal(a.vendor_id, 0x526f73);
	assert_int_equal(a.max_qp, 16384);
	assert_int_equal(a.max_sge, 16);
	assert_int_equal(a.atomic_cap, IBV_ATOMIC_HCA);
	assert_int_equal(a.max_srq, 16384);
	assert_true(a.max_mw > 0);
	assert_int_equal(a.max_pkeys, 1);
	assert_true(a.node_guid == ibv_get_device_guid(ctx->device));
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &ex), 0);
	assert_memory_equal(&ex.orig_attr, &a, sizeof(a));
	assert_int_equal(ex.phys_port_cnt_ex, a.phys_port_cnt);
	assert_true(ex.completion_timestamp_mask != 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void port_attributes(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_port_attr a;
	struct {
		uint8_t old[48], guard[4];
	} old;

	assert_int_equal(ibv_query_port(ctx, 1, &a), 0);
	assert_int_equal(a.state, IBV_PORT_ACTIVE);
	assert_int_equal(a.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_true(a.flags & IBV_QPF_GRH_REQUIRED);
	assert_int_equal(a.gid_tbl_len, 1);
	assert_int_equal(a.pkey_tbl_len, 1);
	assert_int_equal(a.active_mtu, a.max_mtu);
	assert_int_equal(ibv_query_port(ctx, 0, &a), EINVAL);
	assert_int_equal(ibv_query_port(ctx, 3, &a), EINVAL);
	/* The exported function fills in only the old struct, without a byte more. */
	memset(&old, 0xaa, sizeof(old));
	assert_int_equal((ibv_query_port)(ctx, 1, (struct _compat_ibv_port_attr *)&old), 0);
	assert_int_equal(old.guard[0], 0xaa);
	assert_int_equal(old.old[0], IBV_PORT_ACTIVE);
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* A struct of a caller whose headers are older or newer than ours. */
#define CALLER_MAX 2048
#define UNTOUCHED  0xaa
static _Alignas(8) uint8_t callers[CALLER_MAX];

/*
 * The caller stated `size` bytes. It gets the first ones of our struct and zeros behind them, and
 * no byte behind its own struct changes.
 */
static void is_of_size(const uint8_t *got, size_t size, const void *ours, size_t have)
{
	const uint8_t *all = ours;

	for (size_t i = 0; got + i < callers + CALLER_MAX; i++) {
		uint8_t want = i >= size ? UNTOUCHED : i < have ? all[i] : 0;

		if (got[i] != want)
			fail_msg("%zu bytes stated: byte %zu is 0x%02x", size, i, got[i]);
	}
}

static void device_attributes_of_any_size(void **state)
{
	struct ibv_context *ctx = open_device();
	struct verbs_context *v = verbs_get_ctx(ctx);
	struct ibv_device_attr_ex all;
	const size_t sizes[] = {sizeof(all.orig_attr), sizeof(all) - 64, sizeof(all) - 1,
				sizeof(all),	       sizeof(all) + 64, CALLER_MAX};

	assert_int_equal(ibv_query_device_ex(ctx, NULL, &all), 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(callers, UNTOUCHED, sizeof(callers));
		assert_int_equal(v->query_device_ex(ctx, NULL, (void *)callers, sizes[i]), 0);
		is_of_size(callers, sizes[i], &all, sizeof(all));
	}
	/* The first version of the struct had all of these. */
	memset(callers, UNTOUCHED, sizeof(callers));
	assert_int_equal(v->query_device_ex(ctx, NULL, (void *)callers, sizes[0] - 1), EINVAL);
	is_of_size(callers, 0, &all, sizeof(all));
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void port_attributes_of_any_size(void **state)
{
	struct ibv_context *ctx = open_device();
	struct verbs_context *v = verbs_get_ctx(ctx);
	struct ibv_port_attr all;
	const size_t sizes[] = {48, sizeof(all) - 1, sizeof(all), sizeof(all) + 64, CALLER_MAX};

	assert_int_equal(ibv_query_port(ctx, 1, &all), 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(callers, UNTOUCHED, sizeof(callers));
		assert_int_equal(v->query_port(ctx, 1, (void *)callers, sizes[i]), 0);
		is_of_size(callers, sizes[i], &all, sizeof(all));
	}
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void gid_entries_of_any_size(void **state)
{
	char *before = set_port("shm:10.9.8.7;shm:10.9.8.8");
	struct ibv_context *ctx = open_device();
	struct ibv_gid_entry all[2];
	const size_t sizes[] = {sizeof(all[0]) - 8, sizeof(all[0]), sizeof(all[0]) + 64};

	put_port_back(before);
	assert_int_equal(ibv_query_gid_table(ctx, all, 2, 0), 2);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i];

		memset(callers, UNTOUCHED, sizeof(callers));
		assert_int_equal(_ibv_query_gid_ex(ctx, 1, 0, (void *)callers, 0, size), 0);
		is_of_size(callers, size, &all[0], sizeof(all[0]));
		assert_int_equal(_ibv_query_gid_table(ctx, (void *)callers, 2, 0, size), 2);
		is_of_size(callers + size, size, &all[1], sizeof(all[1]));
		memset(callers + size, UNTOUCHED, size);
		is_of_size(callers, size, &all[0], sizeof(all[0]));
	}
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void gids_and_pkeys(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_gid_entry e[4];
	union ibv_gid gid;
	int type;
	__be16 pkey;

	assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), 0);
	assert_int_equal(gid.raw[10], 0xff);
	assert_int_equal(gid.raw[11], 0xff);
	assert_int_equal(ibv_query_gid(ctx, 1, 1, &gid), -1);
	assert_int_equal(ibv_query_gid(ctx, 9, 0, &gid), -1);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 0, &e[0], 0), 0);
	assert_memory_equal(e[0].gid.raw, gid.raw, 16);
	assert_int_equal(e[0].gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 1, &e[0], 0), EINVAL);
	assert_int_equal(ibv_query_gid_table(ctx, e, 4, 0), 1);
	assert_int_equal(ibv_query_gid_table(ctx, e, 0, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_type(ctx, 1, 0, &type), 0);
	assert_int_equal(type, 1);
	assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_query_pkey(ctx, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, 0xffff), 0);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, 0x1234), -1);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void registrations(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *pd2 = ibv_alloc_pd(ctx);
	static char mem[4096];
	struct ibv_mr *mr, *zero;
	uint32_t key;

	assert_non_null(pd);
	assert_true(pd->handle != pd2->handle);
	assert_null(ibv_reg_mr(pd, mem, sizeof(mem), IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(pd, mem, sizeof(mem), IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_reg_mr(pd, mem, sizeof(mem), 1 << 12));
	assert_int_equal(errno, EINVAL);
	zero = ibv_reg_mr(pd, NULL, 0, 0);
	assert_non_null(zero);
	mr = ibv_reg_mr(pd, mem, sizeof(mem), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	assert_non_null(mr);
	assert_true(mr->lkey != zero->lkey);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	key = mr->lkey;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd2, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, pd2);
	assert_true(mr->lkey != key);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_dereg_mr(zero), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd2), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void refused_mr_ex(struct ibv_pd *pd, struct mr_attr a, uint64_t mask, int error)
{
	a.comp_mask = mask;
	errno = 0;
	assert_null(reg_mr_ex(pd, &a));
	assert_int_equal(errno, error);
}

/* Calls newer than rdma-core 44. */
static void newer_calls(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	static char mem[4096];
	struct mr_attr a = {.length = sizeof(mem),
			    .access = IBV_ACCESS_LOCAL_WRITE,
			    .comp_mask = 2,
			    .addr = mem};
	struct ibv_mr *mr;
	uint64_t speed;

	mr = reg_mr_ex(pd, &a);
	assert_non_null(mr);
	assert_ptr_equal(mr->addr, mem);
	assert_int_equal(mr->length, sizeof(mem));
	assert_ptr_equal(mr->pd, pd);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	a.comp_mask |= 1;
	a.iova = 0x10000;
	mr = reg_mr_ex(pd, &a);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	refused_mr_ex(pd, a, 0, EINVAL); /* no memory */
	refused_mr_ex(pd, a, 1, EINVAL);
	for (unsigned bit = 2; bit < 64; bit++) /* DMA-bufs, DMA handles, and unknown bits */
		refused_mr_ex(pd, a, 2 | 1ull << bit, EOPNOTSUPP);
	assert_int_equal(query_port_speed(ctx, 1, &speed), 0);
	assert_int_equal(speed, 400);
	assert_int_equal(query_port_speed(ctx, 2, &speed), EINVAL);
	assert_int_equal(query_port_speed(ctx, 0, &speed), EINVAL);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
}

static void imports(void **state)
{
	struct ibv_context *ctx = open_device(), *other;
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *pd2;
	static char mem[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, sizeof(mem), IBV_ACCESS_LOCAL_WRITE), *mr2;
	int fd = dup(ctx->cmd_fd), not_ours = open("/dev/null", O_RDONLY);

	assert_true(fd >= 0);
	assert_null(ibv_import_device(not_ours));
	assert_null(ibv_import_device(-1));
	other = ibv_import_device(fd);
	assert_non_null(other);
	assert_null(ibv_import_pd(other, pd->handle + 1000));
	pd2 = ibv_import_pd(other, pd->handle);
	assert_non_null(pd2);
	assert_ptr_equal(pd2->context, other);
	assert_null(ibv_import_mr(pd2, mr->handle + 1));
	mr2 = ibv_import_mr(pd2, mr->handle);
	assert_non_null(mr2);
	assert_int_equal(mr2->rkey, mr->rkey);
	ibv_unimport_mr(mr2);
	ibv_unimport_pd(pd2);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	close(fd);
	close(not_ours);
}

/* Objects that the program still points to after it closed their context. They are no leaks. */
static struct {
	struct ibv_pd *volatile pd;
	struct ibv_cq *volatile cq;
	struct ibv_qp *volatile qp;
	struct ibv_mr *volatile mr;
} left;

/* Closing a context frees its objects. The engine stays for the other context. */
static void close_reaps(void **state)
{
	struct ibv_context *a = open_device(), *b = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(a), *again;
	struct ibv_cq *cq = ibv_create_cq(a, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	uint32_t number = pd->handle;

	left.pd = pd;
	left.cq = cq;
	left.qp = ibv_create_qp(pd, &attr);
	assert_non_null(left.qp);
	left.mr = ibv_reg_mr(pd, &attr, sizeof(attr), 0);
	assert_non_null(left.mr);
	assert_int_equal(ibv_close_device(a), 0);
	/* Its PD's number is free: all users of the PD are gone. */
	again = ibv_alloc_pd(b);
	assert_int_equal(again->handle, number);
	assert_int_equal(ibv_dealloc_pd(again), 0);
	assert_int_equal(ibv_close_device(b), 0);
}

static void not_there(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_xrcd_init_attr xrcd = {0};
	struct ibv_wq_init_attr wq = {0};
	struct ibv_alloc_dm_attr dm = {.length = 64};
	struct ibv_td_init_attr td = {0};
	struct ibv_sge sge = {0};

	errno = 0;
	assert_null(ibv_open_xrcd(ctx, &xrcd));
	assert_null(ibv_create_wq(ctx, &wq));
	assert_null(ibv_alloc_dm(ctx, &dm));
	assert_null(ibv_alloc_td(ctx, &td));
	assert_null(ibv_alloc_null_mr(pd));
	assert_null(ibv_reg_dmabuf_mr(pd, 0, 64, 0, 0, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void helpers(void **state)
{
	struct ibv_context *ctx;
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	char buf[64];

	assert_int_equal(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
	assert_int_equal(mbps_to_ibv_rate(25781), IBV_RATE_25_GBPS);
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_120_GBPS), 48);
	assert_int_equal(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
	assert_int_equal(mult_to_ibv_rate(-1), IBV_RATE_MAX);
	assert_string_equal(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
	assert_string_equal(ibv_wc_status_str((enum ibv_wc_status)99), "unknown");
	assert_string_equal(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
	assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
	assert_string_equal(ibv_event_type_str(IBV_EVENT_SQ_DRAINED), "send queue drained");
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	setenv("SYSFS_PATH", "/tmp/somewhere//", 1);
	assert_string_equal(ibv_get_sysfs_path(), "/tmp/somewhere");
	unsetenv("SYSFS_PATH");
	assert_int_equal(ibv_read_sysfs_file("/nowhere", "file", buf, sizeof(buf)), -1);
	assert_true(ibv_read_sysfs_file("/proc/self", "comm", buf, sizeof(buf)) > 0);
	assert_null(strchr(buf, '\n'));
	ctx = open_device();
	assert_int_equal(ibv_query_rt_values_ex(ctx, &v), 0);
	assert_int_equal(v.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	assert_true(v.raw_clock.tv_sec || v.raw_clock.tv_nsec);
	assert_int_equal(ibv_close_device(ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_without_engine),
		cmocka_unit_test(guid_from_address),
		cmocka_unit_test(guid_before_and_after),
		cmocka_unit_test(sysfs_of_open_nic),
		cmocka_unit_test(wrong_gid_index),
		cmocka_unit_test(device_attributes),
		cmocka_unit_test(port_attributes),
		cmocka_unit_test(device_attributes_of_any_size),
		cmocka_unit_test(port_attributes_of_any_size),
		cmocka_unit_test(gid_entries_of_any_size),
		cmocka_unit_test(gids_and_pkeys),
		cmocka_unit_test(registrations),
		cmocka_unit_test(newer_calls),
		cmocka_unit_test(imports),
		cmocka_unit_test(close_reaps),
		cmocka_unit_test(not_there),
		cmocka_unit_test(helpers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
