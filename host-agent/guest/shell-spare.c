/*
 * Makes a waiting bash: preloaded into `bash -c …`, it holds the shell before its main function until the host sends a
 * command, a folder and an environment, and then lets bash start as if it had been called with them. So `$$`, `exit`,
 * `exec`, traps and options are bash's own. At the end it tells the host the folder and the exported variables.
 *
 * No C library of its own: it must load beside whichever one bash was linked with.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "raw_syscall.h"

#define CONTROL_IN_FD 198
#define CONTROL_OUT_FD 199
#define MAX_REQUEST_BYTES (4 * 1024 * 1024)
#define MAX_STATE_BYTES (1024 * 1024)
#define STATE_FOLDER_ONLY 0
#define STATE_COMPLETE 1
#define STARTED 2

/* bash's own, which it exports for its loadable builtins. */
extern char **export_env __attribute__((weak));
extern int array_needs_making __attribute__((weak));
extern void *temporary_env __attribute__((weak));
extern void maybe_make_export_env(void) __attribute__((weak));
/* The C library's. */
extern char **environ __attribute__((weak));
extern int *__errno_location(void) __attribute__((weak));

static long main_pid;
static struct stat control_out;

static size_t length_of(const char *text) {
  size_t length = 0;
  while (text[length] != '\0') length++;
  return length;
}

static int starts_with(const char *text, const char *prefix) {
  while (*prefix != '\0')
    if (*text++ != *prefix++) return 0;
  return 1;
}

static void *allocate(size_t bytes) {
  long at = raw_call(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at < 0 && at > -4096 ? NULL : (void *)at;
}

static _Noreturn void leave(int code) {
  for (;;) raw_call4(SYS_exit_group, code, 0, 0, 0);
}

static void read_fully(uint8_t *into, size_t bytes) {
  while (bytes > 0) {
    long got = raw_call4(SYS_read, CONTROL_IN_FD, (long)into, (long)bytes, 0);
    if (got == -EINTR) continue;
    if (got <= 0) leave(0); /* the host let go of this spare */
    into += got;
    bytes -= (size_t)got;
  }
}

static void send_fully(const char *bytes, size_t length) {
  while (length > 0) {
    long written = raw_call4(SYS_write, CONTROL_OUT_FD, (long)bytes, (long)length, 0);
    if (written == -EINTR) continue;
    if (written <= 0) return;
    bytes += written;
    length -= (size_t)written;
  }
}

static uint32_t get_u32(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void print_error(const char *text) { raw_call4(SYS_write, 2, (long)text, (long)length_of(text), 0); }

static void enter_folder(const char *folder, const char *home) {
  if (raw_call4(SYS_chdir, (long)folder, 0, 0, 0) == 0) return;
  print_error("bash: cannot enter ");
  print_error(folder);
  print_error(": it is gone\n");
  if (raw_call4(SYS_chdir, (long)home, 0, 0, 0) != 0) raw_call4(SYS_chdir, (long)"/", 0, 0, 0);
}

/*
 * Request: u32 length | u32 number of variables | folder NUL | home NUL | command NUL | variables, each NUL-ended.
 * It is acknowledged, so that the host knows of a spare that died whether its command can be given to another one.
 */
__attribute__((constructor)) static void wait_for_command(int argc, char **argv) {
  uint8_t head[4];
  if (raw_call4(SYS_fcntl, CONTROL_IN_FD, F_GETFD, 0, 0) < 0 || argc != 3 || argv == NULL || &environ == NULL) return;
  read_fully(head, sizeof head);
  uint32_t length = get_u32(head);
  uint8_t *request = length >= 4 && length <= MAX_REQUEST_BYTES ? allocate((size_t)length + 1) : NULL;
  if (request == NULL) leave(126);
  read_fully(request, length);
  uint32_t variables = get_u32(request);
  char **environment = variables <= length ? allocate(((size_t)variables + 1) * sizeof(char *)) : NULL;
  if (environment == NULL) leave(126);

  char *at = (char *)request + 4; /* one NUL more than the host sent ends it in any case */
  const char *end = (const char *)request + length;
  char *strings[3];
  for (int i = 0; i < 3; i++) {
    strings[i] = at;
    if (at < end) at += length_of(at) + 1;
  }
  for (uint32_t i = 0; i < variables && at < end; i++) {
    environment[i] = at;
    at += length_of(at) + 1;
  }
  enter_folder(strings[0], strings[1]);
  raw_call4(SYS_close, CONTROL_IN_FD, 0, 0, 0);
  raw_call4(SYS_fcntl, CONTROL_OUT_FD, F_SETFD, FD_CLOEXEC, 0);
  main_pid = raw_call4(SYS_getpid, 0, 0, 0, 0);
  if (raw_call4(SYS_fstat, CONTROL_OUT_FD, (long)&control_out, 0, 0) != 0) main_pid = 0;
  send_fully((const char[]){0, 0, 0, 1, STARTED}, 5);
  argv[2] = strings[2];
  environ = environment;
}

static size_t append(char *buffer, size_t at, const char *text) {
  size_t length = length_of(text) + 1;
  if (at + length > MAX_STATE_BYTES) return MAX_STATE_BYTES + 1;
  for (size_t i = 0; i < length; i++) buffer[at + i] = text[i];
  return at + length;
}

static void put_u32(char *to, size_t value) {
  for (int i = 0; i < 4; i++) to[i] = (char)(value >> (24 - 8 * i));
}

/* State: u32 length | u8 kind | folder NUL | variables, each NUL-ended. The last one sent counts. */
static void send_state(void) {
  struct stat now;
  if (raw_call4(SYS_fstat, CONTROL_OUT_FD, (long)&now, 0, 0) != 0 || now.st_ino != control_out.st_ino ||
      now.st_dev != control_out.st_dev)
    return; /* the command put something of its own there */
  char *buffer = allocate(MAX_STATE_BYTES);
  if (buffer == NULL) return;
  long folder_bytes = raw_call4(SYS_getcwd, (long)(buffer + 5), 4096, 0, 0);
  if (folder_bytes <= 0 || buffer[5] != '/') folder_bytes = 1;
  if (folder_bytes == 1) buffer[5] = '\0';
  size_t folder_end = 5 + (size_t)folder_bytes;
  size_t at = folder_end;
  buffer[4] = STATE_COMPLETE;
  if (maybe_make_export_env == NULL || export_env == NULL) buffer[4] = STATE_FOLDER_ONLY;
  for (char **variable = export_env; buffer[4] == STATE_COMPLETE && *variable != NULL; variable++) {
    /* Options in the environment would hold in every later call, where nothing can unset them. */
    if (starts_with(*variable, "_=") || starts_with(*variable, "SHLVL=") || starts_with(*variable, "SHELLOPTS=") ||
        starts_with(*variable, "BASHOPTS="))
      continue;
    at = append(buffer, at, *variable);
    if (at > MAX_STATE_BYTES) buffer[4] = STATE_FOLDER_ONLY;
  }
  if (buffer[4] == STATE_FOLDER_ONLY) at = folder_end;
  put_u32(buffer, at - 4);
  send_fully(buffer, at);
  raw_call4(SYS_munmap, (long)buffer, MAX_STATE_BYTES, 0, 0);
}

static int is_main_shell(void) { return main_pid != 0 && raw_call4(SYS_getpid, 0, 0, 0, 0) == main_pid; }

__attribute__((destructor)) static void shell_ends(void) {
  if (!is_main_shell()) return;
  if (maybe_make_export_env != NULL) maybe_make_export_env();
  send_state();
}

static int can_rebuild_environment(char *const *environment) {
  return maybe_make_export_env != NULL && &temporary_env != NULL && &array_needs_making != NULL &&
         environment == export_env;
}

static void rebuild_environment(void) {
  array_needs_making = 1;
  maybe_make_export_env();
}

/*
 * The shell replaces itself: for `exec`, and for a last simple command, which bash does not fork for. The state is
 * sent before, without the assignments that hold for this one command only (`A=1 command`).
 */
int execve(const char *path, char *const arguments[], char *const environment[]) {
  int main_shell = is_main_shell();
  if (main_shell && can_rebuild_environment(environment)) {
    void *assignments = temporary_env;
    temporary_env = NULL;
    rebuild_environment();
    send_state();
    temporary_env = assignments;
    rebuild_environment();
    environment = export_env;
  }
  long result = raw_call4(SYS_execve, (long)path, (long)arguments, (long)environment, 0);
  /* A script without an interpreter line: bash now runs it inside this process, and its state is not the shell's. */
  if (main_shell && result == -ENOEXEC) main_pid = 0;
  if (__errno_location != NULL) *__errno_location() = (int)-result;
  return -1;
}
