/*
 * A terminal: opens a pty, runs a program on it, and carries bytes between the pty and its own standard streams, which
 * are the supervisor's pipes: so a host that takes nothing holds the program back. It stays in the program's session and
 * leads it, for only there does gVisor tell which process group is in the foreground; and it tells that group of a new
 * size itself, because gVisor does not.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define CONTROL_IN_FD 198
#define CONTROL_OUT_FD 199
#define BUFFER_BYTES (32 * 1024)
#define RECORD_BYTES 5 /* u8 kind | u16 | u16, big-endian */
#define KIND_RESIZE 1  /* rows, columns */
#define KIND_SIGNAL 2  /* number, 0: to the foreground process group */

struct buffer {
  size_t head, tail;
  uint8_t bytes[BUFFER_BYTES];
};

/* Of the terminal they are for the program: this process only carries. */
static const int own_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTOU, SIGTTIN, SIGPIPE, SIGCHLD};
static struct buffer input, output;
static int master = -1, slave = -1;
static pid_t program;

/* Only there to end the wait. */
static void on_child(int number) { (void)number; }

static bool is_empty(const struct buffer *buffer) { return buffer->head == buffer->tail; }

/* False at the end of what is read. */
static bool fill(struct buffer *buffer, int fd) {
  if (is_empty(buffer)) buffer->head = buffer->tail = 0;
  ssize_t got = read(fd, buffer->bytes + buffer->tail, sizeof buffer->bytes - buffer->tail);
  if (got > 0) buffer->tail += (size_t)got;
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* False when nobody reads it any more. */
static bool flush(struct buffer *buffer, int fd) {
  while (!is_empty(buffer)) {
    ssize_t written = write(fd, buffer->bytes + buffer->head, buffer->tail - buffer->head);
    if (written > 0)
      buffer->head += (size_t)written;
    else
      return errno == EAGAIN || errno == EINTR;
  }
  return true;
}

static void signal_foreground(int number) {
  pid_t group = tcgetpgrp(slave);
  if (group > 0 && group != getpgrp()) kill(-group, number);
}

static void resize(uint16_t rows, uint16_t columns) {
  struct winsize size = {.ws_row = rows, .ws_col = columns};
  if (ioctl(master, TIOCSWINSZ, &size) == 0) signal_foreground(SIGWINCH);
}

/* False when the supervisor let go. */
static bool take_records(void) {
  static uint8_t bytes[64 * RECORD_BYTES];
  static size_t held;
  ssize_t got = read(CONTROL_IN_FD, bytes + held, sizeof bytes - held);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  held += (size_t)got;
  size_t at = 0;
  for (; held - at >= RECORD_BYTES; at += RECORD_BYTES) {
    uint16_t first = (uint16_t)(bytes[at + 1] << 8 | bytes[at + 2]);
    uint16_t second = (uint16_t)(bytes[at + 3] << 8 | bytes[at + 4]);
    if (bytes[at] == KIND_RESIZE) resize(first, second);
    if (bytes[at] == KIND_SIGNAL && first > 0 && first < NSIG) signal_foreground(first);
  }
  memmove(bytes, bytes + at, held - at);
  held -= at;
  return true;
}

static _Noreturn void fail(const char *what) {
  fprintf(stderr, "terminal: %s: %s\n", what, strerror(errno));
  _exit(126);
}

static void open_pty(uint16_t rows, uint16_t columns) {
  int number = -1, unlocked = 0;
  char name[32];
  master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (master < 0 || ioctl(master, TIOCSPTLCK, &unlocked) < 0 || ioctl(master, TIOCGPTN, &number) < 0) fail("/dev/ptmx");
  snprintf(name, sizeof name, "/dev/pts/%d", number);
  slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) fail(name);
  struct winsize size = {.ws_row = rows, .ws_col = columns};
  ioctl(master, TIOCSWINSZ, &size);
  /* The supervisor has made this process the leader of a session already. */
  if (ioctl(slave, TIOCSCTTY, 0) < 0) fail("no controlling terminal");
}

static _Noreturn void become_program(char **arguments) {
  setpgid(0, 0);
  /* From the background this would stop it, were SIGTTOU not ignored until then. */
  tcsetpgrp(slave, getpid());
  for (int fd = 0; fd < 3; fd++) dup2(slave, fd);
  /* What is ignored would stay so in the program. */
  for (size_t i = 0; i < sizeof own_signals / sizeof own_signals[0]; i++) signal(own_signals[i], SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execvp(arguments[0], arguments);
  fail(arguments[0]);
}

static void start_program(char **arguments) {
  program = fork();
  if (program < 0) fail("fork");
  if (program == 0) become_program(arguments);
  setpgid(program, program);
  tcsetpgrp(slave, program);
}

/* The program's end as a status; -1 while it lives. One that only stopped is woken: there is no shell above it. */
static int ended_with(void) {
  int status;
  while (waitpid(program, &status, WNOHANG | WUNTRACED) == program) {
    if (!WIFSTOPPED(status)) return status;
    kill(-program, SIGCONT);
  }
  return -1;
}

/* What is on the terminal goes out, then this process ends the way its program did. */
static _Noreturn void end_like(int status) {
  fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) & ~O_NONBLOCK);
  do {
    if (!flush(&output, STDOUT_FILENO)) break;
  } while (fill(&output, master) && !is_empty(&output));
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  signal(WTERMSIG(status), SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  kill(getpid(), WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

static void carry(const sigset_t *mask, bool *takes_input) {
  struct pollfd polled[4] = {
      {.fd = CONTROL_IN_FD, .events = POLLIN},
      {.fd = *takes_input && is_empty(&input) ? STDIN_FILENO : -1, .events = POLLIN},
      {.fd = master, .events = (short)((is_empty(&output) ? POLLIN : 0) | (is_empty(&input) ? 0 : POLLOUT))},
      {.fd = is_empty(&output) ? -1 : STDOUT_FILENO, .events = POLLOUT},
  };
  /* A terminal that nobody has open any more is ready for ever; only the program's end matters then. */
  if (polled[2].events == 0) polled[2].fd = -1;
  if (ppoll(polled, 4, NULL, mask) < 0) return;
  /* First: a size that was sent before some input counts for it. */
  if (polled[0].revents != 0 && !take_records()) _exit(0);
  if (polled[1].revents != 0 && !fill(&input, STDIN_FILENO)) *takes_input = false;
  if (polled[2].revents != 0 && is_empty(&output)) fill(&output, master);
  flush(&input, master);
  if (!flush(&output, STDOUT_FILENO)) _exit(0);
}

/* Arguments: rows, columns, the program and its arguments. */
int main(int count, char **arguments) {
  if (count < 4) return 2;
  prctl(PR_SET_DUMPABLE, 0);
  fcntl(CONTROL_IN_FD, F_SETFD, FD_CLOEXEC);
  fcntl(CONTROL_OUT_FD, F_SETFD, FD_CLOEXEC);
  sigset_t blocked, while_polling;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, &while_polling);
  sigdelset(&while_polling, SIGCHLD);
  struct sigaction action = {.sa_handler = on_child};
  for (size_t i = 0; i < sizeof own_signals / sizeof own_signals[0]; i++) signal(own_signals[i], SIG_IGN);
  sigaction(SIGCHLD, &action, NULL);
  open_pty((uint16_t)atoi(arguments[1]), (uint16_t)atoi(arguments[2]));
  start_program(arguments + 3);
  fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
  fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
  bool takes_input = true;
  for (;;) {
    int status = ended_with();
    if (status >= 0) end_like(status);
    carry(&while_polling, &takes_input);
  }
}
