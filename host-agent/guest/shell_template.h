/*
 * A bash that has begun and is forked for each call. The fork starts bash's main function anew, by the way bash itself
 * goes to run a script without an interpreter line in a process of its own: everything is set up as at a start, and only
 * the loading is left out.
 */
#ifndef SANDGATE_SHELL_TEMPLATE_H
#define SANDGATE_SHELL_TEMPLATE_H

#include <fcntl.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "shell_request.h"

#define KEEPER_STACK_BYTES (16 * 1024)

/* bash's own. */
extern char subshell_top_level[] __attribute__((weak)); /* a sigjmp_buf */
extern int subshell_argc __attribute__((weak));
extern char **subshell_argv __attribute__((weak));
extern char **subshell_envp __attribute__((weak));
extern int parse_and_execute_level __attribute__((weak));
extern int executing_builtin __attribute__((weak));
extern int executing_list __attribute__((weak));
extern int indirection_level __attribute__((weak));
extern int evalnest __attribute__((weak));
extern int posixly_correct __attribute__((weak));
extern int startup_state __attribute__((weak));
extern char *the_current_working_directory __attribute__((weak));
extern void *xmalloc(size_t bytes) __attribute__((weak));
extern void set_default_locale(void) __attribute__((weak));
extern void reset_parser(void) __attribute__((weak));
extern void reset_terminating_signals(void) __attribute__((weak));
extern void without_job_control(void) __attribute__((weak));
extern void init_job_stats(void) __attribute__((weak));
extern void reset_shell_flags(void) __attribute__((weak));
extern void reset_shell_options(void) __attribute__((weak));
extern void reset_shopt_options(void) __attribute__((weak));
extern void clear_unwind_protect_list(int flags) __attribute__((weak));
extern void unset_bash_input(int check_zero) __attribute__((weak));
extern void unbind_args(void) __attribute__((weak));
/* The C library's. */
extern char *setlocale(int category, const char *name) __attribute__((weak));
extern int clone(int (*run)(void *), void *stack, int flags, void *argument, ...) __attribute__((weak));
extern _Noreturn void siglongjmp(void *buffer, int value) __attribute__((weak));

static enum { SHELL, TEMPLATE, SPARE } role;
static char *held_path; /* what a shell that is to be held seems to execute */

/* As the kernel lays them out: SIG_DFL and SIG_IGN, no flags, no mask. */
static const uint64_t default_action[4] = {0};
static const uint64_t ignore_action[4] = {1};

/*
 * What a keeper works with, in the memory that it shares with the template. Each is made for its first keeper: of memory in
 * one piece gVisor copies all to a fork that writes to a page of it, also what nobody has used.
 */
static struct keeper_space {
  struct fork_request request;
  int fds[FORK_FDS];
  uint8_t stack[KEEPER_STACK_BYTES] __attribute__((aligned(16)));
} *keeper_spaces[MAX_CHANNELS];

/* The C library is not musl, for one, or this is not the bash we know. */
static int can_be_template(void) {
  return &subshell_top_level != NULL && &subshell_argc != NULL && &subshell_argv != NULL && &subshell_envp != NULL &&
         &parse_and_execute_level != NULL && &executing_builtin != NULL && &executing_list != NULL &&
         &indirection_level != NULL && &evalnest != NULL && &posixly_correct != NULL && set_default_locale != NULL &&
         setlocale != NULL &&
         &startup_state != NULL && &the_current_working_directory != NULL && xmalloc != NULL && reset_parser != NULL &&
         reset_terminating_signals != NULL && without_job_control != NULL && init_job_stats != NULL &&
         reset_shell_flags != NULL && reset_shell_options != NULL && reset_shopt_options != NULL &&
         clear_unwind_protect_list != NULL && unset_bash_input != NULL && unbind_args != NULL && clone != NULL &&
         siglongjmp != NULL && &environ != NULL;
}

static char *copy_of(const char *text) {
  size_t bytes = length_of(text) + 1;
  char *copy = xmalloc(bytes);
  for (size_t i = 0; i < bytes; i++) copy[i] = text[i];
  return copy;
}

/* What the one command that the template has run may have left behind, as bash does it before it goes this way. */
static void forget_own_command(void) {
  reset_parser();
  without_job_control();
  init_job_stats();
  reset_shell_flags();
  reset_shell_options();
  reset_shopt_options();
  clear_unwind_protect_list(0);
  unset_bash_input(0);
  unbind_args();
  parse_and_execute_level = executing_builtin = executing_list = startup_state = 0;
  indirection_level = evalnest = posixly_correct = 0;
  the_current_working_directory = NULL;
}

static _Noreturn void start_bash_anew(const struct shell_request *request) {
  forget_own_command();
  /* All but the first are freed by bash when it goes this way once more. */
  subshell_argv = xmalloc(4 * sizeof(char *));
  subshell_argv[0] = copy_of("bash");
  subshell_argv[1] = copy_of("-c");
  subshell_argv[2] = copy_of(request->command);
  subshell_argv[3] = NULL;
  subshell_argc = 3;
  subshell_envp = environ = request->environment;
  /* The one thing that bash does before the point it goes back to, and that depends on the environment. */
  setlocale(LC_ALL, "C");
  set_default_locale();
  siglongjmp(subshell_top_level, 1);
}

static void set_signals_blocked(uint64_t signals) {
  raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&signals, 0, sizeof signals);
}

/* The event goes out before anything of the call happens, so what was not reported did not begin. */
static _Noreturn void become_shell(const struct keeper_space *space, int32_t keeper) {
  raw_call4(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
  if (raw_call4(SYS_getppid, 0, 0, 0, 0) != keeper) leave(0);
  raw_call4(SYS_setsid, 0, 0, 0, 0);
  struct keeper_event event = {.slot = space->request.slot,
                               .generation = space->request.generation,
                               .kind = KEEPER_SPAWNED,
                               .keeper = keeper,
                               .pid = (int32_t)raw_call4(SYS_getpid, 0, 0, 0, 0)};
  report(TEMPLATE_EVENT_FD, &event);
  for (int i = 0; i < FORK_FDS; i++) {
    if (i < 3) raw_call4(SYS_dup3, space->fds[i], i, 0, 0);
    if (i == 3) raw_call4(SYS_dup3, space->fds[i], CONTROL_OUT_FD, O_CLOEXEC, 0);
    raw_call4(SYS_close, space->fds[i], 0, 0, 0);
  }
  role = SPARE;
  struct shell_request request = {.command = held_path, .environment = environ};
  start_bash_anew(&request);
}

/* All that bash does at a start it has done once, so that the memory it needs is there when the command comes. */
static _Noreturn void wait_as_spare(void) {
  struct shell_request request = read_request(CONTROL_OUT_FD);
  role = SHELL;
  enter_folder(request.folder, request.home);
  remember_shell();
  /* From here on it is a program like any other, with nothing in it that is not its own. */
  raw_call4(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0);
  set_signals_blocked(0);
  say_started();
  start_bash_anew(&request);
}

/* As a keeper of the supervisor's, see keeper.h; the memory that it shares is the template's. */
static int keep_shell(void *argument) {
  const struct keeper_space *space = argument;
  raw_call4(SYS_close, TEMPLATE_FD, 0, 0, 0); /* the last of these to be closed tells of the template's end */
  raw_call4(SYS_rt_sigaction, SIGCHLD, (long)default_action, 0, sizeof(uint64_t)); /* ignored, nothing could be reaped */
  raw_call4(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0);
  int32_t self = (int32_t)raw_call4(SYS_getpid, 0, 0, 0, 0);
  long pid = raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
  if (pid == 0) become_shell(space, self);
  for (int i = 0; i < FORK_LIFE; i++) raw_call4(SYS_close, space->fds[i], 0, 0, 0);
  struct keeper_event event = {.slot = space->request.slot,
                               .generation = space->request.generation,
                               .kind = KEEPER_SPAWN_FAILED,
                               .keeper = self,
                               .error = pid < 0 ? (int32_t)-pid : 0};
  if (pid < 0) report(TEMPLATE_EVENT_FD, &event);
  keep_until_empty(TEMPLATE_EVENT_FD, &event, pid < 0 ? 0 : pid);
}

/* False when the supervisor is gone. */
static int receive_request(struct fork_request *request, int fds[FORK_FDS]) {
  union {
    struct cmsghdr header;
    uint8_t bytes[CMSG_SPACE(FORK_FDS * sizeof(int))];
  } control = {0};
  struct iovec data = {.iov_base = request, .iov_len = sizeof *request};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  long got;
  while ((got = raw_call4(SYS_recvmsg, TEMPLATE_FD, (long)&message, MSG_CMSG_CLOEXEC, 0)) == -EINTR) continue;
  if (got != (long)sizeof *request || control.header.cmsg_type != SCM_RIGHTS) return 0;
  const int *received = (const int *)CMSG_DATA(&control.header);
  for (int i = 0; i < FORK_FDS; i++) fds[i] = received[i];
  return request->slot < MAX_CHANNELS;
}

/* Negative where there is no memory or no process left. */
static int start_keeper(const struct fork_request *request, const int fds[FORK_FDS]) {
  struct keeper_space *space = keeper_spaces[request->slot];
  if (space == NULL) space = keeper_spaces[request->slot] = allocate(sizeof *space);
  if (space == NULL) return -1;
  space->request = *request;
  for (int i = 0; i < FORK_FDS; i++) space->fds[i] = fds[i];
  return clone(keep_shell, space->stack + KEEPER_STACK_BYTES, CLONE_VM | SIGCHLD, space);
}

static _Noreturn void serve_as_template(void) {
  set_signals_blocked(~0ULL);
  reset_terminating_signals();
  for (int number = 1; number <= 64; number++)
    raw_call4(SYS_rt_sigaction, number, (long)default_action, 0, sizeof(uint64_t));
  /* Its keepers need nobody to reap them. */
  raw_call4(SYS_rt_sigaction, SIGCHLD, (long)ignore_action, 0, sizeof(uint64_t));
  /* Calls run as the same user: none may look into this one, from which all others are made. */
  raw_call4(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0);
  held_path = copy_of(held_path); /* it is an argument, and those are given up when bash starts anew */
  for (;;) {
    struct fork_request request;
    int fds[FORK_FDS];
    if (!receive_request(&request, fds)) leave(0);
    int keeper = start_keeper(&request, fds);
    for (int i = 0; i < FORK_FDS; i++) raw_call4(SYS_close, fds[i], 0, 0, 0);
    if (keeper >= 0) continue;
    struct keeper_event event = {.slot = request.slot,
                                 .generation = request.generation,
                                 .kind = KEEPER_SPAWN_FAILED,
                                 .error = EAGAIN};
    report(TEMPLATE_EVENT_FD, &event);
  }
}

#endif
