/*
 * The shell of a session, preloaded into bash. `bash -c <this library>` becomes a template that is forked for each call.
 * Where bash is not one that can be that, `bash -c :` is held before its main function until the command comes, and then
 * starts as if it had been called with it. Either way `$$`, `exit`, `exec`, traps and options are bash's own. At the end
 * the host is told the folder and the exported variables.
 *
 * No C library of its own: it must load beside whichever one bash was linked with.
 */
#include "shell_template.h"

__attribute__((constructor)) static void wait_for_command(int argc, char **argv) {
  if (raw_call4(SYS_fcntl, CONTROL_IN_FD, F_GETFD, 0, 0) < 0 || argc != 3 || argv == NULL || &environ == NULL) return;
  if (argv[2][0] == '/') {
    held_path = argv[2];
    role = TEMPLATE;
    return;
  }
  struct shell_request request = read_request(CONTROL_IN_FD);
  enter_folder(request.folder, request.home);
  raw_call4(SYS_close, CONTROL_IN_FD, 0, 0, 0);
  raw_call4(SYS_fcntl, CONTROL_OUT_FD, F_SETFD, FD_CLOEXEC, 0);
  remember_process();
  remember_control();
  say_started();
  argv[2] = (char *)request.command;
  environ = request.environment;
}

int execve(const char *path, char *const arguments[], char *const environment[]) {
  if (role != SHELL && is_same(path, held_path) && can_be_template()) {
    if (role == SPARE) start_as_asked(read_request(CONTROL_OUT_FD));
    begin_as_template();
  }
  return execute(path, arguments, environment);
}

/* What waits has no terminal; a call may have one. */
pid_t tcgetpgrp(int fd) {
  pid_t group = 0;
  if (role == TEMPLATE && prepared.environment != NULL && is_to_be_held(held_path)) hold_template();
  long result = role == SHELL ? raw_call4(SYS_ioctl, fd, TIOCGPGRP, (long)&group, 0) : -ENOTTY;
  if (result == 0) return group;
  if (__errno_location != NULL) *__errno_location() = (int)-result;
  return -1;
}
