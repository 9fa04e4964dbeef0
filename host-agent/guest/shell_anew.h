/*
 * How bash starts anew in a process that it has begun in: its main function once more, by the way bash itself goes to run a
 * script without an interpreter line. Everything is set up as at a start, and only the loading is left out.
 */
#ifndef SANDGATE_SHELL_ANEW_H
#define SANDGATE_SHELL_ANEW_H

#include <locale.h>
#include <sched.h>
#include <signal.h>

#include "shell_preparation.h"

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
  asked_for_terminal = 0;
  siglongjmp(subshell_top_level, 1);
}

static void set_signals_blocked(uint64_t signals) {
  raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&signals, 0, sizeof signals);
}

#endif
