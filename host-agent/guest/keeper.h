/*
 * A keeper: the small process between the supervisor and one program. It is a subreaper, so whatever the program
 * leaves behind (double forks, new sessions) stays below it; it reaps, reports the program's end, and ends when
 * nothing is left to keep.
 *
 * It shares the supervisor's memory, for an address space of its own is the dearest part of a process in gVisor. So
 * it runs on a stack of its own and calls nothing of the C library that could touch errno or other shared state.
 */
#ifndef SANDGATE_KEEPER_H
#define SANDGATE_KEEPER_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>

#include "keeper_report.h"

#define KEEPER_FD_FLOOR 256 /* above every number a program is given */
#define KEPT_FD 0
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define STACK_BYTES (32 * 1024)
#define MAX_SPAWN_BYTES (256 * 1024)
#define MAX_STRINGS 8192 /* arguments and variables together */

/* All a keeper needs, and its program until it executes: not used again before the keeper was reaped. */
struct program {
  const char *cwd;
  char **argv;
  char **environment;
  int fds[5]; /* stdin, stdout, stderr, control in, control out; -1 where there is none */
  int event_fd;
  int highest_fd; /* of all the supervisor has open */
  int error;
  bool can_be_held;
  struct keeper_event event;
  char *strings[MAX_STRINGS];
  uint8_t bytes[MAX_SPAWN_BYTES + 16];
  uint8_t keeper_stack[STACK_BYTES] __attribute__((aligned(16)));
  uint8_t program_stack[STACK_BYTES] __attribute__((aligned(16)));
};

static const int program_fd_numbers[5] = {0, 1, 2, CONTROL_IN_FD, CONTROL_OUT_FD};

static const char *path_of(char **environment) {
  for (; *environment != NULL; environment++)
    if (strncmp(*environment, "PATH=", 5) == 0) return *environment + 5;
  return DEFAULT_PATH;
}

/* Returns only with the errno of the most telling failure. */
static int execute_on_path(const struct program *program) {
  const char *name = program->argv[0];
  size_t name_bytes = strlen(name) + 1;
  if (strchr(name, '/') != NULL)
    return (int)-raw_call4(SYS_execve, (long)name, (long)program->argv, (long)program->environment, 0);
  int error = ENOENT;
  char file[PATH_MAX];
  for (const char *from = path_of(program->environment); *from != '\0';) {
    size_t length = strcspn(from, ":");
    if (length > 0 && length + 1 + name_bytes <= sizeof file) {
      memcpy(file, from, length);
      file[length] = '/';
      memcpy(file + length + 1, name, name_bytes);
      int failure = (int)-raw_call4(SYS_execve, (long)file, (long)program->argv, (long)program->environment, 0);
      if (failure != ENOENT && failure != ENOTDIR) error = failure;
    }
    from += length + (from[length] == ':');
  }
  return error;
}

static int prepare_program(const struct program *program) {
  static const uint64_t default_action[4]; /* as the kernel lays it out: all zero is SIG_DFL */
  static const uint64_t no_signals;
  for (int number = 1; number <= 64; number++)
    raw_call4(SYS_rt_sigaction, number, (long)default_action, 0, sizeof no_signals);
  /*
   * A group of its own for each. In a session of its own too, the group would be an orphaned one, and gVisor hangs up on all
   * of such a group when any member of it ends while another is stopped: no program that is held may be in one.
   */
  if (program->can_be_held)
    raw_call4(SYS_setpgid, 0, 0, 0, 0);
  else
    raw_call4(SYS_setsid, 0, 0, 0, 0);
  for (int i = 0; i < 5; i++) {
    if (program->fds[i] < 0) continue;
    long result = raw_call4(SYS_dup3, program->fds[i], program_fd_numbers[i], 0, 0);
    if (result < 0) return (int)-result;
  }
  long result = raw_call4(SYS_chdir, (long)program->cwd, 0, 0, 0);
  if (result < 0) return (int)-result;
  raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&no_signals, 0, sizeof no_signals);
  return 0;
}

static int become_program(void *argument) {
  struct program *program = argument;
  int error = prepare_program(program);
  program->error = error != 0 ? error : execute_on_path(program);
  leave(127);
}

/* Returns once the program executed, or failed to: its errno arrives here by itself, in the shared memory. */
static pid_t start_program(struct program *program) {
  /* First out of the way of the numbers the program is given; only then may dup3 overwrite those. */
  for (int i = 0; i < 5; i++) {
    if (program->fds[i] < 0) continue;
    program->fds[i] = (int)raw_call4(SYS_fcntl, program->fds[i], F_DUPFD_CLOEXEC, KEEPER_FD_FLOOR, 0);
    if (program->fds[i] < 0) program->error = -program->fds[i];
  }
  if (program->error != 0) return -1;
  void *stack = program->program_stack + STACK_BYTES;
  pid_t pid = clone(become_program, stack, CLONE_VM | CLONE_VFORK | SIGCHLD, program);
  if (pid < 0) program->error = EAGAIN;
  return pid;
}

/*
 * Of all the supervisor has open it keeps the socket for its events alone: pipes must end with their programs. Closed one
 * by one, and no more than there can be: gVisor of 2024 has no close_range.
 */
static void keep_only(const struct program *program, int event_fd) {
  raw_call4(SYS_dup3, event_fd, KEPT_FD, O_CLOEXEC, 0);
  for (int fd = KEPT_FD + 1; fd <= program->highest_fd; fd++) raw_call4(SYS_close, fd, 0, 0, 0);
  for (int i = 0; i < 5; i++)
    if (program->fds[i] > 0) raw_call4(SYS_close, program->fds[i], 0, 0, 0);
  raw_call4(SYS_close, event_fd, 0, 0, 0);
}

/* The keeper's whole life. */
static int keep(void *argument) {
  struct program *program = argument;
  static const uint64_t all_signals = ~0ULL;
  raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all_signals, 0, sizeof all_signals);
  raw_call4(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0);
  int event_fd = (int)raw_call4(SYS_fcntl, program->event_fd, F_DUPFD_CLOEXEC, KEEPER_FD_FLOOR, 0);
  pid_t pid = start_program(program);
  keep_only(program, event_fd);

  bool failed = program->error != 0;
  struct keeper_event *event = &program->event;
  event->pid = (int32_t)pid;
  event->error = program->error;
  event->kind = failed ? KEEPER_SPAWN_FAILED : KEEPER_SPAWNED;
  report(KEPT_FD, event);
  keep_until_empty(KEPT_FD, event, failed ? 0 : pid);
}

static pid_t start_keeper(struct program *program) {
  return clone(keep, program->keeper_stack + STACK_BYTES, CLONE_VM | SIGCHLD, program);
}

#endif
