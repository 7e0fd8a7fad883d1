/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/machine.h"

static void says_what_the_machine_says(void **state)
{
	json_t *o = machine_describe();
	struct utsname u;

	assert_non_null(o);
	uname(&u);
	assert_string_equal(json_string_value(json_object_get(o, "kernel")), u.release);
	assert_string_equal(json_string_value(json_object_get(o, "arch")), u.machine);
	assert_int_equal(json_integer_value(json_object_get(o, "cores")),
			 sysconf(_SC_NPROCESSORS_ONLN));
	assert_in_range(json_integer_value(json_object_get(o, "allowed_cores")), 1,
			sysconf(_SC_NPROCESSORS_CONF));
	assert_int_equal(json_integer_value(json_object_get(o, "page_size")),
			 sysconf(_SC_PAGESIZE));
	assert_true(json_integer_value(json_object_get(o, "memory")) > 1 << 20);
	json_decref(o);
}

/* Every member is there, known or null, so that readers of --json need no special cases. */
static void all_members(void **state)
{
	static const char *const names[] = {"cpu",	"cores",     "allowed_cores", "arch",
					    "kernel",	"page_size", "memory",	      "rmem_max",
					    "wmem_max", "hypervisor"};
	json_t *o = machine_describe();

	assert_non_null(o);
	assert_int_equal(json_object_size(o), sizeof(names) / sizeof(*names));
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_non_null(json_object_get(o, names[i]));

	json_t *cpu = json_object_get(o, "cpu");

	if (json_is_string(cpu)) {
		const char *s = json_string_value(cpu);

		assert_true(*s && *s != ' ' && !strpbrk(s, "\n\t"));
	}
	json_decref(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_what_the_machine_says),
		cmocka_unit_test(all_members),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
