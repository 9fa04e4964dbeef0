/* What a shell is asked to run: read from its control stream, before bash knows of anything. */
#ifndef SANDGATE_SHELL_REQUEST_H
#define SANDGATE_SHELL_REQUEST_H

#include <stdbool.h>

#include "shell_state.h"

#define MAX_REQUEST_BYTES (4 * 1024 * 1024)
#define REQUEST_PAGE_BYTES 4096
#define AS_PREPARED 0xffffffffu /* in place of the number of variables: the folder and they are those prepared for */

extern char **environ __attribute__((weak));

struct shell_request {
  const char *folder, *home, *command;
  char **environment; /* NULL: none, what was prepared for holds */
};

/* Ends the shell where there is less to come: the host has let go of it. */
static size_t read_at_least(int fd, char *into, size_t least, size_t most) {
  size_t got = 0;
  while (got < least) {
    long more = raw_call4(SYS_read, fd, (long)(into + got), (long)(most - got), 0);
    if (more == -EINTR) continue;
    if (more <= 0) leave(0);
    got += (size_t)more;
  }
  return got;
}

static uint32_t get_u32(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

/*
 * u32 number of variables | folder NUL | home NUL | command NUL | variables, each NUL-ended. Behind them has to be one byte
 * more, which is NUL and ends the last of them in any case.
 */
static struct shell_request parse_request(char *bytes, size_t length) {
  uint32_t variables = get_u32((uint8_t *)bytes);
  char **environment = NULL;
  if (variables == AS_PREPARED)
    variables = 0;
  else if (variables > length || (environment = allocate(((size_t)variables + 1) * sizeof(char *))) == NULL)
    leave(126);

  char *at = bytes + 4;
  const char *end = bytes + length;
  char *strings[3];
  for (int i = 0; i < 3; i++) {
    strings[i] = at;
    if (at < end) at += length_of(at) + 1;
  }
  for (uint32_t i = 0; i < variables && at < end; i++) {
    environment[i] = at;
    at += length_of(at) + 1;
  }
  return (struct shell_request){strings[0], strings[1], strings[2], environment};
}

/* Each time one page for what is short, and what is long by itself: no call is asked to read more often than that. */
static struct shell_request read_request(int fd) {
  char *bytes = allocate(REQUEST_PAGE_BYTES);
  if (bytes == NULL) leave(126);
  size_t got = read_at_least(fd, bytes, 4, REQUEST_PAGE_BYTES - 1);
  uint32_t length = get_u32((uint8_t *)bytes);
  if (length < 4 || length > MAX_REQUEST_BYTES) leave(126);
  if (length + 4 > REQUEST_PAGE_BYTES - 1) {
    char *longer = allocate((size_t)length + 5);
    if (longer == NULL) leave(126);
    for (size_t i = 0; i < got; i++) longer[i] = bytes[i];
    bytes = longer;
  }
  if (got < (size_t)length + 4) read_at_least(fd, bytes + got, length + 4 - got, length + 4 - got);
  bytes[length + 4] = '\0';
  return parse_request(bytes + 4, length);
}

/* So that the host knows of a spare that died whether its command can be given to another one. */
static void say_started(void) { send_fully((const char[]){0, 0, 0, 1, STATE_STARTED}, 5); }

static void print_error(const char *text) { raw_call4(SYS_write, 2, (long)text, (long)length_of(text), 0); }

static void enter_folder(const char *folder, const char *home) {
  if (raw_call4(SYS_chdir, (long)folder, 0, 0, 0) == 0) return;
  print_error("bash: cannot enter ");
  print_error(folder);
  print_error(": it is gone\n");
  if (raw_call4(SYS_chdir, (long)home, 0, 0, 0) != 0) raw_call4(SYS_chdir, (long)"/", 0, 0, 0);
}

#endif
