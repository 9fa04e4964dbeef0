/* What a shell is asked to run: read from its control stream, before bash knows of anything. */
#ifndef SANDGATE_SHELL_REQUEST_H
#define SANDGATE_SHELL_REQUEST_H

#include "shell_state.h"

#define MAX_REQUEST_BYTES (4 * 1024 * 1024)

extern char **environ __attribute__((weak));

struct shell_request {
  const char *folder, *home, *command;
  char **environment;
};

static void read_fully(int fd, uint8_t *into, size_t bytes) {
  while (bytes > 0) {
    long got = raw_call4(SYS_read, fd, (long)into, (long)bytes, 0);
    if (got == -EINTR) continue;
    if (got <= 0) leave(0); /* the host let go of this shell */
    into += got;
    bytes -= (size_t)got;
  }
}

static uint32_t get_u32(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

/* Request: u32 length | u32 number of variables | folder NUL | home NUL | command NUL | variables, each NUL-ended. */
static struct shell_request read_request(int fd) {
  uint8_t head[4];
  read_fully(fd, head, sizeof head);
  uint32_t length = get_u32(head);
  uint8_t *bytes = length >= 4 && length <= MAX_REQUEST_BYTES ? allocate((size_t)length + 1) : NULL;
  if (bytes == NULL) leave(126);
  read_fully(fd, bytes, length);
  uint32_t variables = get_u32(bytes);
  char **environment = variables <= length ? allocate(((size_t)variables + 1) * sizeof(char *)) : NULL;
  if (environment == NULL) leave(126);

  char *at = (char *)bytes + 4; /* one NUL more than the host sent ends it in any case */
  const char *end = (const char *)bytes + length;
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
