/* What a shell tells the host at its end: the folder and the exported variables, from which the next call starts. */
#ifndef SANDGATE_SHELL_STATE_H
#define SANDGATE_SHELL_STATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "keeper_report.h"

#define MAX_STATE_BYTES (1024 * 1024)
#define FEW_STATE_BYTES (8 * 1024)
#define STATE_FOLDER_ONLY 0
#define STATE_COMPLETE 1
#define STATE_STARTED 2

/* bash's own, which it exports for its loadable builtins. */
extern char **export_env __attribute__((weak));
extern int array_needs_making __attribute__((weak));
extern void *temporary_env __attribute__((weak));
extern void maybe_make_export_env(void) __attribute__((weak));
/* The C library's. */
extern int *__errno_location(void) __attribute__((weak));
extern int fflush(void *stream) __attribute__((weak));
extern void *dlsym(void *library, const char *name) __attribute__((weak));
#define NEXT_LIBRARY ((void *)-1L)

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

/* From here on this process is the shell of a call; what it forks is not. */
static void remember_process(void) { main_pid = raw_call4(SYS_getpid, 0, 0, 0, 0); }

static void remember_control(void) {
  if (raw_call4(SYS_fstat, CONTROL_OUT_FD, (long)&control_out, 0, 0) != 0) main_pid = 0;
}

static int is_main_shell(void) { return main_pid != 0 && raw_call4(SYS_getpid, 0, 0, 0, 0) == main_pid; }

static void send_fully(const char *bytes, size_t length) {
  while (length > 0) {
    long written = raw_call4(SYS_write, CONTROL_OUT_FD, (long)bytes, (long)length, 0);
    if (written == -EINTR) continue;
    if (written <= 0) return;
    bytes += written;
    length -= (size_t)written;
  }
}

static size_t append(char *buffer, size_t at, const char *text) {
  size_t length = length_of(text) + 1;
  if (at + length > MAX_STATE_BYTES) return MAX_STATE_BYTES + 1;
  for (size_t i = 0; i < length; i++) buffer[at + i] = text[i];
  return at + length;
}

/* Options in the environment would hold in every later call, where nothing can unset them. */
static int is_of_one_call(const char *variable) {
  return starts_with(variable, "_=") || starts_with(variable, "SHLVL=") || starts_with(variable, "SHELLOPTS=") ||
         starts_with(variable, "BASHOPTS=");
}

/* State: u32 length | u8 kind | folder NUL | variables, each NUL-ended. The last one sent counts. */
static void write_state(char *buffer, int has_variables) {
  long folder_bytes = raw_call4(SYS_getcwd, (long)(buffer + 5), 4096, 0, 0);
  if (folder_bytes <= 0 || buffer[5] != '/') folder_bytes = 1;
  if (folder_bytes == 1) buffer[5] = '\0';
  size_t folder_end = 5 + (size_t)folder_bytes;
  size_t at = folder_end;
  buffer[4] = has_variables ? STATE_COMPLETE : STATE_FOLDER_ONLY;
  for (char **variable = export_env; buffer[4] == STATE_COMPLETE && *variable != NULL; variable++) {
    if (is_of_one_call(*variable)) continue;
    at = append(buffer, at, *variable);
    if (at > MAX_STATE_BYTES) buffer[4] = STATE_FOLDER_ONLY;
  }
  if (buffer[4] == STATE_FOLDER_ONLY) at = folder_end;
  for (int i = 0; i < 4; i++) buffer[i] = (char)((at - 4) >> (24 - 8 * i));
  send_fully(buffer, at);
}

static void send_state(void) {
  struct stat now;
  if (raw_call4(SYS_fstat, CONTROL_OUT_FD, (long)&now, 0, 0) != 0 || now.st_ino != control_out.st_ino ||
      now.st_dev != control_out.st_dev)
    return; /* the command put something of its own there */
  int has_variables = maybe_make_export_env != NULL && export_env != NULL;
  size_t bytes = 5 + 4096;
  for (char **variable = export_env; has_variables && *variable != NULL; variable++) bytes += length_of(*variable) + 1;
  char few[FEW_STATE_BYTES]; /* usually: memory that is new costs more than all else here */
  if (bytes <= sizeof few) return write_state(few, has_variables);
  char *many = allocate(MAX_STATE_BYTES);
  if (many == NULL) return;
  write_state(many, has_variables);
  raw_call4(SYS_munmap, (long)many, MAX_STATE_BYTES, 0, 0);
}

static void tell_state(void) {
  if (maybe_make_export_env != NULL) maybe_make_export_env();
  send_state();
}

__attribute__((destructor)) static void shell_ends(void) {
  if (is_main_shell()) tell_state();
}

static _Noreturn void exit_as_usual(int status) {
  void (*usual)(int) = dlsym == NULL ? NULL : (void (*)(int))dlsym(NEXT_LIBRARY, "exit");
  if (usual != NULL) usual(status);
  leave(status & 0xff);
}

/*
 * bash leaves nothing to the end of its process but to write what it has printed. The C library's way out looks at each
 * library once more, and gVisor has to fetch all of them for that.
 */
_Noreturn void exit(int status) {
  if (!is_main_shell() || fflush == NULL) exit_as_usual(status);
  fflush(NULL);
  tell_state();
  leave(status & 0xff);
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
static int execute(const char *path, char *const arguments[], char *const environment[]) {
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

#endif
