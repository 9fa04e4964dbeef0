/*
 * What the template has done already: bash is set up for the folder and the variables that the next call will most likely
 * start from, and held where all that is left is to run a command. Forks go on from there. What could have changed since is
 * looked at again when the command comes; where anything has, bash starts anew as if nothing had been prepared.
 */
#ifndef SANDGATE_SHELL_PREPARATION_H
#define SANDGATE_SHELL_PREPARATION_H

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#include "shell_request.h"

/* bash's own. */
extern char *command_execution_string __attribute__((weak));
extern char *the_current_working_directory __attribute__((weak));
extern time_t shell_start_time __attribute__((weak));
extern struct timeval shellstart __attribute__((weak));
extern pid_t dollar_dollar_pid __attribute__((weak));
extern pid_t shell_pgrp __attribute__((weak));
extern char *get_string_value(const char *name) __attribute__((weak));
extern void *bind_variable(const char *name, char *value, int flags) __attribute__((weak));
extern void set_ppid(void) __attribute__((weak));
extern void seedrand(void) __attribute__((weak));
extern void seedrand32(void) __attribute__((weak));
extern void *xmalloc(size_t bytes) __attribute__((weak));
/* The C library's. */
extern int gettimeofday(struct timeval *restrict now, void *restrict zone) __attribute__((weak));

#define MAX_SAID_BYTES (32 * 1024) /* less than a pipe holds */

static struct shell_request prepared; /* without variables where there is nothing */
static int said_before_bytes;
static int asked_for_terminal; /* how often, since bash has set its variables */

static int can_prepare(void) {
  return &command_execution_string != NULL && &the_current_working_directory != NULL && &shell_start_time != NULL &&
         &shellstart != NULL && &dollar_dollar_pid != NULL && &shell_pgrp != NULL && get_string_value != NULL &&
         bind_variable != NULL && set_ppid != NULL && seedrand != NULL && seedrand32 != NULL && xmalloc != NULL &&
         gettimeofday != NULL;
}

static char *copy_of(const char *text) {
  size_t bytes = length_of(text) + 1;
  char *copy = xmalloc(bytes);
  for (size_t i = 0; i < bytes; i++) copy[i] = text[i];
  return copy;
}

static int is_same(const char *a, const char *b) { return starts_with(a, b) && starts_with(b, a); }

/* Written to standard error, of which nobody reads. */
static int said_bytes(void) {
  int bytes = 0;
  return raw_call4(SYS_ioctl, 2, FIONREAD, (long)&bytes, 0) == 0 ? bytes : MAX_SAID_BYTES;
}

static int status_of(const char *path, struct stat *status) {
  return raw_call4(SYS_newfstatat, AT_FDCWD, (long)path, (long)status, 0) == 0;
}

static int is_folder(const char *path) {
  struct stat status;
  return status_of(path, &status) && S_ISDIR(status.st_mode);
}

static const char *prepared_variable(const char *name_and_equals) {
  for (char **variable = prepared.environment; *variable != NULL; variable++)
    if (starts_with(*variable, name_and_equals)) return *variable + length_of(name_and_equals);
  return NULL;
}

/* What bash acts on by itself, where not all of that is undone when it starts anew. */
static const char *const acted_upon[] = {
    "BASH",      "CHILD_MAX=", "COLUMNS=", "COMP",      "DIRSTACK=", "EPOCH",   "EUID=",      "EXECIGNORE=", "FUNCN",
    "GLOBIGNOR", "GROUPS=",    "HIST",     "HOSTFILE=", "IFS=",      "IGNOREE", "LINENO=",    "LINES=",      "MAIL",
    "OPT",       "PIPESTATUS", "POSIX",    "PPID=",     "PS",        "RANDOM=", "SECONDS=",   "SHELLOPTS",   "SRANDOM=",
    "SSH",       "TERMCAP=",   "TERMINFO", "TEXTDOM",   "TIMEFORM",  "TMOUT=",  "TZ=",        "UID=",        "histchars=",
    "ignoreeof="};

static int is_name(const char *variable) {
  size_t at = 0;
  for (; variable[at] != '=' && variable[at] != '\0'; at++) {
    char c = variable[at];
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!is_letter && !(at > 0 && c >= '0' && c <= '9')) return 0;
  }
  return at > 0;
}

/* Whether a fork can start bash anew for other variables as well, after it has been set up for these. */
static int leaves_nothing_behind(void) {
  for (char **variable = prepared.environment; *variable != NULL; variable++) {
    if (!is_name(*variable)) return 0;
    for (size_t i = 0; i < sizeof acted_upon / sizeof *acted_upon; i++)
      if (starts_with(*variable, acted_upon[i])) return 0;
  }
  return 1;
}

/* What bash asked of the file system for its variables, as it was when it did. */
static struct surroundings {
  const char *folder; /* NULL where bash did not take the one it was told, or had something to say */
  const char *folder_before;
  int had_folder_before;
} surroundings;

static void look_around(void) {
  const char *folder = prepared_variable("PWD=");
  struct surroundings seen = {.folder_before = prepared_variable("OLDPWD=")};
  int has_said = said_bytes() != said_before_bytes;
  if (!has_said && folder != NULL && the_current_working_directory != NULL &&
      is_same(folder, the_current_working_directory))
    seen.folder = folder;
  if (seen.folder_before != NULL) seen.had_folder_before = is_folder(seen.folder_before);
  surroundings = seen;
}

/* Goes into the folder: another one may bear its name by now. */
static int is_still_so(void) {
  const struct surroundings *seen = &surroundings;
  struct stat here, named;
  return seen->folder != NULL && raw_call4(SYS_chdir, (long)prepared.folder, 0, 0, 0) == 0 && status_of(".", &here) &&
         status_of(seen->folder, &named) && here.st_ino == named.st_ino && here.st_dev == named.st_dev &&
         (seen->folder_before == NULL || is_folder(seen->folder_before) == seen->had_folder_before);
}

static void begin_now(void) {
  gettimeofday(&shellstart, NULL);
  shell_start_time = shellstart.tv_sec;
  seedrand();
  seedrand32();
}

/* What depends on the process, when bash was set up in another one; the rest has memory fetched that a call needs. */
static void become_other_process(void) {
  dollar_dollar_pid = shell_pgrp = (pid_t)main_pid;
  set_ppid();
  begin_now();
}

/* What depends on the command and on when it is run. */
static void give_command(const char *command) {
  command_execution_string = copy_of(command);
  bind_variable("BASH_EXECUTION_STRING", command_execution_string, 0);
  begin_now();
}

/* bash asks twice for the foreground of its terminal once its variables are set: there nothing is left that costs much. */
static int is_to_be_held(const char *held_command) {
  const char *command = get_string_value("BASH_EXECUTION_STRING");
  return command != NULL && is_same(command, held_command) && ++asked_for_terminal == 2;
}

#endif
