/* What keepers tell the supervisor, and how one waits for all that lives below it. No C library: see keeper.h. */
#ifndef SANDGATE_KEEPER_REPORT_H
#define SANDGATE_KEEPER_REPORT_H

#include <errno.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "raw_syscall.h"

#define CONTROL_IN_FD 198 /* what a program that asked for a control pair finds open, besides 0, 1, 2 */
#define CONTROL_OUT_FD 199
/* What a template finds there instead: requests to fork, and the socket for the events of the forks' keepers. */
#define TEMPLATE_FD CONTROL_IN_FD
#define TEMPLATE_EVENT_FD CONTROL_OUT_FD
#define MAX_CHANNELS 64

enum keeper_event_kind { KEEPER_SPAWNED = 1, KEEPER_SPAWN_FAILED, KEEPER_EXIT };

/* Each is one packet, so the events of all keepers share one socket. */
struct keeper_event {
  uint32_t slot;
  uint32_t generation;
  uint32_t kind;
  int32_t keeper; /* of a fork of a template; otherwise 0 */
  int32_t pid;
  int32_t error; /* errno of a failed spawn */
  int32_t exit_code;
  int32_t exit_signal;
  uint32_t max_rss_kib;
  uint64_t cpu_ms;
};

/*
 * One packet to a template. With it come the standard streams of the call, its end of the control socket, and of a pipe
 * that the keeper alone holds: its end is that of the keeper, which is no child of the supervisor.
 */
struct fork_request {
  uint32_t slot;
  uint32_t generation;
};
#define MAX_PREPARATION_BYTES (16 * 1024) /* behind it: what the call will most likely start from */
#define FORK_FDS 5
#define FORK_LIFE 4 /* which of them is the keeper's */

static _Noreturn void leave(int code) {
  for (;;) raw_call4(SYS_exit_group, code, 0, 0, 0);
}

static void report(int event_fd, const struct keeper_event *event) {
  while (raw_call4(SYS_write, event_fd, (long)event, sizeof *event, 0) == -EINTR) continue;
}

static uint64_t cpu_ms_of(const struct rusage *usage) {
  return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000 +
         (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1000;
}

/* Reports the end of the program, and ends once nothing is left; without a program (0) it only waits for that. */
static _Noreturn void keep_until_empty(int event_fd, struct keeper_event *event, long pid) {
  for (;;) {
    int status = 0;
    struct rusage usage;
    long ended = raw_call4(SYS_wait4, -1, (long)&status, 0, (long)&usage);
    if (ended == -ECHILD) leave(0);
    if (ended != pid || pid == 0) continue;
    event->kind = KEEPER_EXIT;
    event->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    event->exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    event->cpu_ms = cpu_ms_of(&usage);
    event->max_rss_kib = (uint32_t)usage.ru_maxrss;
    report(event_fd, event);
    pid = 0; /* the number may come back as that of an orphan */
  }
}

#endif
