/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A QUIC stack in C whose congestion controllers are structs of callbacks, as picoquic's are, and
 * one of them that is bytecode: which algorithm it is, the file decides that is loaded. cc
 * congestion.c -lequic_vm -o congestion && ./congestion reno.o
 */
#include <equic_vm.h>

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a stack has: a path, what it tells its controller, and what it asks of it. */
struct path {
	uint64_t window;
	uint64_t datagram_size;
	void *state; /* the controller's */
};

enum notification { ACKNOWLEDGED, LOST, PERSISTENT_CONGESTION };

struct ack_state {
	uint64_t bytes;
	uint64_t sent_at;
	int app_limited;
};

struct congestion_algorithm {
	const char *id;
	int (*init)(struct path *path);
	void (*notify)(struct path *path, enum notification what, const struct ack_state *state,
		       uint64_t now);
	void (*delete)(struct path *path);
	void (*observe)(const struct path *path, uint64_t *threshold);
};

/* The bytecode's view of a path: reno.bpf.c. */
struct view {
	uint64_t datagram_size, acked, sent_at, app_limited;
	uint64_t window, threshold, recovery_start, avoided;
};

static struct {
	equic_vm_program *program;
	uint32_t init, on_ack, on_loss, on_persistent_congestion;
	uint64_t view; /* where it is in an instance's memory */
} plugin;

/* What a call may cost, in instructions: far more than it does. */
#define BUDGET 10000

static struct view *view_of(const struct path *path)
{
	return (struct view *)equic_vm_instance_memory(path->state, plugin.view,
						       sizeof(struct view));
}

/* A controller that fails is taken off; the path keeps its window. */
static int run(struct path *path, uint32_t entry, uint64_t now)
{
	const uint64_t arguments[5] = {plugin.view, now};
	uint64_t budget = BUDGET, window;

	if (!path->state)
		return -1;
	if (equic_vm_run(path->state, entry, arguments, &budget, path, &window)) {
		warnx("%s: taken off", equic_vm_last_error_message());
		equic_vm_instance_free(path->state);
		path->state = NULL;
		return -1;
	}
	/* Whatever it says, a path sends something, and not without end. */
	if (window < 2 * path->datagram_size)
		window = 2 * path->datagram_size;
	if (window > 1 << 30)
		window = 1 << 30;
	path->window = window;
	return 0;
}

static int bytecode_init(struct path *path)
{
	equic_vm_instance *instance;

	if (equic_vm_instance_new(plugin.program, &instance))
		return -1;
	path->state = instance;
	view_of(path)->datagram_size = path->datagram_size;
	return run(path, plugin.init, 0);
}

static void bytecode_notify(struct path *path, enum notification what,
			    const struct ack_state *state, uint64_t now)
{
	struct view *view;

	if (!path->state)
		return;
	view = view_of(path);
	view->acked = state->bytes;
	view->sent_at = state->sent_at;
	view->app_limited = state->app_limited;
	switch (what) {
	case ACKNOWLEDGED:
		run(path, plugin.on_ack, now);
		break;
	case LOST:
		run(path, plugin.on_loss, now);
		break;
	case PERSISTENT_CONGESTION:
		run(path, plugin.on_persistent_congestion, now);
		break;
	}
}

static void bytecode_delete(struct path *path)
{
	equic_vm_instance_free(path->state);
	path->state = NULL;
}

static void bytecode_observe(const struct path *path, uint64_t *threshold)
{
	*threshold = path->state ? view_of(path)->threshold : UINT64_MAX;
}

static const struct congestion_algorithm bytecode = {
	.id = "bytecode",
	.init = bytecode_init,
	.notify = bytecode_notify,
	.delete = bytecode_delete,
	.observe = bytecode_observe,
};

static void load(const char *name)
{
	static unsigned char elf[1 << 20];
	equic_vm_helpers *helpers;
	uint64_t length;
	size_t got;
	FILE *file = fopen(name, "rb");

	if (!file)
		err(1, "%s", name);
	got = fread(elf, 1, sizeof(elf), file);
	fclose(file);
	if (equic_vm_helpers_new(&helpers) ||
	    equic_vm_program_load(helpers, elf, got, 0, 0, &plugin.program) ||
	    equic_vm_program_entry(plugin.program, "init", &plugin.init) ||
	    equic_vm_program_entry(plugin.program, "on_ack", &plugin.on_ack) ||
	    equic_vm_program_entry(plugin.program, "on_loss", &plugin.on_loss) ||
	    equic_vm_program_entry(plugin.program, "on_persistent_congestion",
				   &plugin.on_persistent_congestion))
		errx(1, "%s: %s", name, equic_vm_last_error_message());
	equic_vm_helpers_free(helpers);
	equic_vm_program_free_memory(plugin.program, &plugin.view, &length);
	if (length < sizeof(struct view))
		errx(1, "%s: its variables leave no room", name);
}

int main(int argc, char **argv)
{
	const struct congestion_algorithm *algorithm = &bytecode;
	struct path path = {.datagram_size = 1200};
	struct ack_state state = {0};
	uint64_t threshold, now = 0;

	if (argc != 2)
		errx(2, "usage: congestion reno.o");
	load(argv[1]);
	if (algorithm->init(&path))
		errx(1, "%s: %s", algorithm->id, equic_vm_last_error_message());
	printf("start %llu\n", (unsigned long long)path.window);
	/* Ten round trips in which a whole window is acknowledged; something is lost in the sixth.
	 */
	for (int round = 1; round <= 10; round++) {
		uint64_t window = path.window;

		state.sent_at = now += 50000;
		for (uint64_t sent = 0; sent + 1200 <= window; sent += 1200) {
			state.bytes = 1200;
			algorithm->notify(&path, ACKNOWLEDGED, &state, now);
		}
		if (round == 6)
			algorithm->notify(&path, LOST, &state, now);
		algorithm->observe(&path, &threshold);
		printf("round %d window %llu%s\n", round, (unsigned long long)path.window,
		       threshold == UINT64_MAX ? " slow start" : "");
	}
	algorithm->notify(&path, PERSISTENT_CONGESTION, &state, now);
	printf("persistent congestion %llu\n", (unsigned long long)path.window);
	algorithm->delete(&path);
	equic_vm_program_free(plugin.program);
	return 0;
}
