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
  remember_shell();
  say_started();
  argv[2] = (char *)request.command;
  environ = request.environment;
}

static int is_same(const char *a, const char *b) { return starts_with(a, b) && starts_with(b, a); }

int execve(const char *path, char *const arguments[], char *const environment[]) {
  if (role != SHELL && is_same(path, held_path) && can_be_template()) {
    if (role == SPARE) wait_as_spare();
    serve_as_template();
  }
  return execute(path, arguments, environment);
}
