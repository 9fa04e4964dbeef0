/*
 * A bash that has begun and is forked for each call. It is set up for what the call will most likely start from, and held
 * just before it would run the command; a fork that is asked for something else starts bash anew.
 */
#ifndef SANDGATE_SHELL_TEMPLATE_H
#define SANDGATE_SHELL_TEMPLATE_H

#include <sys/prctl.h>
#include <sys/socket.h>

#include "shell_anew.h"

#define KEEPER_STACK_BYTES (16 * 1024)
/* bash keeps some of what it had each time: after so often it is better to begin with a template that is new. */
#define MAX_PREPARATIONS 64

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
  uint32_t is_forking; /* until then the template's memory has to stay as it is */
  uint8_t stack[KEEPER_STACK_BYTES] __attribute__((aligned(16)));
} *keeper_spaces[MAX_CHANNELS];

/* The request that the template is at, and what comes with it. */
static struct {
  struct fork_request request;
  int fds[FORK_FDS];
  char *preparation; /* with room for one byte more */
  size_t preparation_bytes;
  bool is_there;
} pending;

static char *held_preparation;
static size_t held_preparation_bytes;
static bool is_held, cannot_be_held;
static void *held_place[5]; /* where forks of a held template go on */
static uint64_t held_child_action[4];

static void set_child_action(const uint64_t action[4], uint64_t former[4]) {
  raw_call4(SYS_rt_sigaction, SIGCHLD, (long)action, (long)former, sizeof(uint64_t));
}

/* The event goes out before anything of the call happens, so what was not reported did not begin. */
static _Noreturn void become_shell(const struct keeper_space *space, int32_t keeper) {
  raw_call4(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
  if (raw_call4(SYS_getppid, 0, 0, 0, 0) != keeper) leave(0);
  raw_call4(SYS_setsid, 0, 0, 0, 0);
  remember_process();
  struct keeper_event event = {.slot = space->request.slot,
                               .generation = space->request.generation,
                               .kind = KEEPER_SPAWNED,
                               .keeper = keeper,
                               .pid = (int32_t)main_pid};
  report(TEMPLATE_EVENT_FD, &event);
  for (int i = 0; i < FORK_FDS; i++) {
    if (i < 3) raw_call4(SYS_dup3, space->fds[i], i, 0, 0);
    if (i == 3) raw_call4(SYS_dup3, space->fds[i], CONTROL_OUT_FD, O_CLOEXEC, 0);
    raw_call4(SYS_close, space->fds[i], 0, 0, 0);
  }
  remember_control();
  role = SPARE;
  if (is_held) {
    set_child_action(held_child_action, NULL);
    set_signals_blocked(0);
    __builtin_longjmp(held_place, 1);
  }
  struct shell_request request = {.command = held_path, .environment = environ};
  start_bash_anew(&request);
}

/* From here on it is a program like any other, with nothing in it that is not its own. */
static void become_ordinary(void) {
  raw_call4(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0);
  say_started();
}

/* All that bash does at a start it has done once, so that the memory it needs is there when the command comes. */
static _Noreturn void start_as_asked(struct shell_request request) {
  if (request.environment == NULL) {
    request.folder = prepared.folder;
    request.home = prepared.home;
    request.environment = prepared.environment;
  }
  if (request.environment == NULL) leave(126);
  role = SHELL;
  enter_folder(request.folder, request.home);
  raw_call4(SYS_rt_sigaction, SIGQUIT, (long)default_action, 0, sizeof(uint64_t)); /* bash had it ignored */
  set_signals_blocked(0);
  become_ordinary();
  start_bash_anew(&request);
}

/* Returns where bash is to go on with the command as it stands. */
static void wait_where_held(void) {
  become_other_process();
  struct shell_request request = read_request(CONTROL_OUT_FD);
  if (request.environment != NULL || !is_still_so()) start_as_asked(request);
  role = SHELL;
  become_ordinary();
  give_command(request.command);
}

/* As a keeper of the supervisor's, see keeper.h; the memory that it shares is the template's. */
static int keep_shell(void *argument) {
  struct keeper_space *space = argument;
  raw_call4(SYS_close, TEMPLATE_FD, 0, 0, 0); /* the last of these to be closed tells of the template's end */
  set_child_action(default_action, NULL); /* ignored, nothing could be reaped */
  raw_call4(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0);
  int32_t self = (int32_t)raw_call4(SYS_getpid, 0, 0, 0, 0);
  long pid = raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
  if (pid == 0) become_shell(space, self);
  __atomic_store_n(&space->is_forking, 0, __ATOMIC_SEQ_CST);
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
static bool receive_request(void) {
  union {
    struct cmsghdr header;
    uint8_t bytes[CMSG_SPACE(FORK_FDS * sizeof(int))];
  } control = {0};
  if (pending.preparation == NULL) pending.preparation = allocate(MAX_PREPARATION_BYTES + 1);
  if (pending.preparation == NULL) return false;
  struct iovec parts[2] = {{.iov_base = &pending.request, .iov_len = sizeof pending.request},
                           {.iov_base = pending.preparation, .iov_len = MAX_PREPARATION_BYTES}};
  struct msghdr message = {
      .msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
  long got;
  while ((got = raw_call4(SYS_recvmsg, TEMPLATE_FD, (long)&message, MSG_CMSG_CLOEXEC, 0)) == -EINTR) continue;
  if (got < (long)sizeof pending.request || control.header.cmsg_type != SCM_RIGHTS) return false;
  const int *received = (const int *)CMSG_DATA(&control.header);
  for (int i = 0; i < FORK_FDS; i++) pending.fds[i] = received[i];
  pending.preparation_bytes = (size_t)got - sizeof pending.request;
  pending.is_there = pending.request.slot < MAX_CHANNELS;
  return pending.is_there;
}

/* Negative where there is no memory or no process left. */
static int start_keeper(void) {
  struct keeper_space *space = keeper_spaces[pending.request.slot];
  if (space == NULL) space = keeper_spaces[pending.request.slot] = allocate(sizeof *space);
  if (space == NULL) return -1;
  space->request = pending.request;
  for (int i = 0; i < FORK_FDS; i++) space->fds[i] = pending.fds[i];
  space->is_forking = 1;
  int keeper = clone(keep_shell, space->stack + KEEPER_STACK_BYTES, CLONE_VM | SIGCHLD, space);
  if (keeper < 0) space->is_forking = 0;
  return keeper;
}

static void fork_as_asked(void) {
  int keeper = start_keeper();
  for (int i = 0; i < FORK_FDS; i++) raw_call4(SYS_close, pending.fds[i], 0, 0, 0);
  pending.is_there = false;
  if (keeper >= 0) return;
  struct keeper_event event = {.slot = pending.request.slot,
                               .generation = pending.request.generation,
                               .kind = KEEPER_SPAWN_FAILED,
                               .error = EAGAIN};
  report(TEMPLATE_EVENT_FD, &event);
}

/* One that was killed before it had forked never will. */
static void wait_for_keepers(void) {
  const struct timespec a_moment = {.tv_nsec = 1000000};
  for (int i = 0; i < MAX_CHANNELS; i++) {
    int patience_ms = 2000;
    while (keeper_spaces[i] != NULL && __atomic_load_n(&keeper_spaces[i]->is_forking, __ATOMIC_SEQ_CST)) {
      if (patience_ms-- == 0) leave(0);
      raw_call4(SYS_nanosleep, (long)&a_moment, 0, 0, 0);
    }
  }
}

static bool is_prepared_for_pending(void) {
  if (pending.preparation == NULL) return true; /* that is the one that is held */
  if (pending.preparation_bytes != held_preparation_bytes) return false;
  for (size_t i = 0; i < held_preparation_bytes; i++)
    if (pending.preparation[i] != held_preparation[i]) return false;
  return true;
}

/* From here on what forks are asked for as prepared is this, and bash is not set up for it. */
static void take_preparation(void) {
  wait_for_keepers();
  if (held_preparation != NULL) raw_call4(SYS_munmap, (long)held_preparation, MAX_PREPARATION_BYTES + 1, 0, 0);
  held_preparation = pending.preparation;
  held_preparation_bytes = pending.preparation_bytes;
  pending.preparation = NULL;
  char *bytes = allocate(held_preparation_bytes + 1);
  if (bytes == NULL || held_preparation_bytes < 4) leave(0);
  for (size_t i = 0; i < held_preparation_bytes; i++) bytes[i] = held_preparation[i];
  prepared = parse_request(bytes, held_preparation_bytes);
  surroundings.folder = NULL;
}

static _Noreturn void set_bash_up(void) {
  static int preparations;
  said_before_bytes = said_bytes();
  if (said_before_bytes >= MAX_SAID_BYTES || preparations++ == MAX_PREPARATIONS) leave(0);
  is_held = false;
  raw_call4(SYS_chdir, (long)prepared.folder, 0, 0, 0);
  for (int number = 1; number <= 31; number++)
    raw_call4(SYS_rt_sigaction, number, (long)default_action, 0, sizeof(uint64_t));
  struct shell_request request = {.command = held_path, .environment = prepared.environment};
  start_bash_anew(&request);
}

static _Noreturn void serve_as_template(void) {
  set_signals_blocked(~0ULL);
  /* Its keepers need nobody to reap them. */
  set_child_action(ignore_action, held_child_action);
  while (raw_call4(SYS_wait4, -1, 0, WNOHANG, 0) > 0) continue;
  for (;;) {
    if (!pending.is_there && !receive_request()) leave(0);
    if (pending.preparation_bytes > 0 && !is_prepared_for_pending()) {
      take_preparation();
      if (!cannot_be_held && leaves_nothing_behind()) set_bash_up();
    }
    fork_as_asked();
  }
}

/* As a program that bash seems to execute: a template that begins, or one that could not be held before. */
static _Noreturn void begin_as_template(void) {
  cannot_be_held = !can_prepare() || prepared.environment != NULL; /* the latter: bash went on to the end */
  reset_terminating_signals();
  for (int number = 1; number <= 64; number++)
    raw_call4(SYS_rt_sigaction, number, (long)default_action, 0, sizeof(uint64_t));
  /* Calls run as the same user: none may look into this one, from which all others are made. */
  raw_call4(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0);
  if (prepared.environment == NULL) held_path = copy_of(held_path); /* an argument is given up when bash starts anew */
  serve_as_template();
}

/* Returns in forks only, each time that one is to go on with its command. */
static void hold_template(void) {
  look_around();
  is_held = true;
  if (__builtin_setjmp(held_place) == 0) serve_as_template();
  wait_where_held();
}

#endif
