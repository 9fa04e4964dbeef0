/*
 * A keeper: the small process between the supervisor and one program. It is a subreaper, so whatever the program
 * leaves behind (double forks, new sessions) stays below it; it reaps, reports the program's end, and ends when
 * nothing is left to keep.
 */
#ifndef SANDGATE_KEEPER_H
#define SANDGATE_KEEPER_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL_IN_FD 198 /* what a program that asked for a control pair finds open, besides 0, 1, 2 */
#define CONTROL_OUT_FD 199
#define KEEPER_FD_FLOOR 256 /* above every number a program is given */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum keeper_event_kind { KEEPER_SPAWNED = 1, KEEPER_SPAWN_FAILED, KEEPER_EXIT };

/* Smaller than PIPE_BUF, so the events of all keepers share one pipe. */
struct keeper_event {
  uint32_t slot;
  uint32_t generation;
  uint32_t kind;
  int32_t pid;
  int32_t error; /* errno of a failed spawn */
  int32_t exit_code;
  int32_t exit_signal;
  uint32_t max_rss_kib;
  uint64_t cpu_ms;
};

struct program {
  const char *cwd;
  char **argv;
  char **environment;
  int fds[5]; /* stdin, stdout, stderr, control in, control out; -1 where there is none */
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
  if (strchr(name, '/') != NULL) {
    execve(name, program->argv, program->environment);
    return errno;
  }
  int error = ENOENT;
  char file[PATH_MAX];
  for (const char *from = path_of(program->environment); *from != '\0';) {
    size_t length = strcspn(from, ":");
    if (length + strlen(name) + 2 <= sizeof file) {
      snprintf(file, sizeof file, "%.*s/%s", (int)length, length > 0 ? from : ".", name);
      execve(file, program->argv, program->environment);
      if (errno != ENOENT && errno != ENOTDIR) error = errno;
    }
    from += length + (from[length] == ':');
  }
  return error;
}

/* In the child, which shares the keeper's memory until it executes. */
static int become_program(const struct program *program) {
  for (int number = 1; number < NSIG; number++) {
    if (number == SIGKILL || number == SIGSTOP) continue;
    signal(number, SIG_DFL);
  }
  setsid();
  for (int i = 0; i < 5; i++)
    if (program->fds[i] >= 0 && dup2(program->fds[i], program_fd_numbers[i]) < 0) return errno;
  if (chdir(program->cwd) < 0) return errno;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  return execute_on_path(program);
}

static void report(int event_fd, struct keeper_event event) {
  while (write(event_fd, &event, sizeof event) < 0 && errno == EINTR) continue;
}

static uint64_t cpu_ms_of(const struct rusage *usage) {
  return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000 +
         (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1000;
}

static void close_all_from(int first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  struct rlimit limit;
  int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536 ? (int)limit.rlim_cur : 65536;
  for (int fd = first; fd < end; fd++) close(fd);
}

static int close_all_but(int kept_fd) {
  if (dup2(kept_fd, 0) < 0) return kept_fd;
  close_all_from(1);
  return 0;
}

/* Program and keeper share memory until the program executes, so its errno arrives here by itself. */
static pid_t start_program(struct program *program, int *error) {
  /* First out of the way of the numbers the program is given; only then may dup2 overwrite those. */
  for (int i = 0; i < 5; i++) {
    if (program->fds[i] < 0) continue;
    program->fds[i] = fcntl(program->fds[i], F_DUPFD_CLOEXEC, KEEPER_FD_FLOOR);
    if (program->fds[i] < 0) *error = errno;
  }
  if (*error != 0) return -1;
  pid_t pid = vfork();
  if (pid == 0) {
    *error = become_program(program);
    _exit(127);
  }
  if (pid < 0) *error = errno;
  return pid;
}

/* The keeper's whole life, in the process forked for it. */
static _Noreturn void keep(struct program program, int event_fd, struct keeper_event event) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  signal(SIGCHLD, SIG_DFL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);

  event_fd = fcntl(event_fd, F_DUPFD_CLOEXEC, KEEPER_FD_FLOOR);
  if (event_fd < 0) _exit(1);
  int error = 0;
  pid_t pid = start_program(&program, &error);
  event_fd = close_all_but(event_fd);
  event.pid = (int32_t)pid;
  event.error = error;
  event.kind = error == 0 ? KEEPER_SPAWNED : KEEPER_SPAWN_FAILED;
  report(event_fd, event);

  for (;;) {
    int status;
    struct rusage usage;
    pid_t ended = wait4(-1, &status, 0, &usage);
    if (ended < 0 && errno == ECHILD) _exit(0);
    if (ended != pid || error != 0) continue;
    event.kind = KEEPER_EXIT;
    event.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    event.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    event.cpu_ms = cpu_ms_of(&usage);
    event.max_rss_kib = (uint32_t)usage.ru_maxrss;
    report(event_fd, event);
    pid = -1; /* the number may come back as that of an orphan */
  }
}

#endif
