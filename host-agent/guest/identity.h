/* What the guest reads about itself: which sandbox it is, and of which generation. */
#ifndef SANDGATE_IDENTITY_H
#define SANDGATE_IDENTITY_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "wire.h"

#define IDENTITY_FOLDER "/run/sandgate/"
#define MAX_SANDBOX_ID_BYTES 64
#define MACHINE_ID_BYTES 16

static struct {
  char sandbox_id[MAX_SANDBOX_ID_BYTES + 1];
  char machine_id[2 * MACHINE_ID_BYTES + 1]; /* in the form of machine-id(5): images have a link to it in /etc */
  uint32_t generation;
} identity;

/* A plain process has the machine's folders around it, and nothing to say there. */
static bool has_identity(void) { return getpid() == 1; }

/* Whoever reads it sees all of the old or all of the new. */
static void write_identity_file(const char *path, const char *text) {
  static const char next[] = IDENTITY_FOLDER ".next";
  unlink(next);
  int fd = open(next, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (fd < 0) return;
  bool written = dprintf(fd, "%s\n", text) > 0;
  close(fd);
  if (written) rename(next, path);
}

static void write_identity(void) {
  if (!has_identity()) return;
  char generation[16];
  snprintf(generation, sizeof generation, "%u", identity.generation);
  write_identity_file(IDENTITY_FOLDER "sandbox_id", identity.sandbox_id);
  write_identity_file(IDENTITY_FOLDER "machine_id", identity.machine_id);
  write_identity_file(IDENTITY_FOLDER "generation", generation);
}

/* A checkpoint has none: so a program that runs before it has gone on finds no identity rather than a former one. */
static void forget_identity(void) {
  if (!has_identity()) return;
  unlink(IDENTITY_FOLDER "sandbox_id");
  unlink(IDENTITY_FOLDER "machine_id");
  unlink(IDENTITY_FOLDER "generation");
}

static void renew_machine_id(void) {
  uint8_t bytes[MACHINE_ID_BYTES];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return;
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(identity.machine_id + 2 * i, 3, "%02x", bytes[i]);
}

/* Of a sandbox that was booted: it has the name of its host, and was made of no checkpoint. */
static void begin_identity(void) {
  gethostname(identity.sandbox_id, MAX_SANDBOX_ID_BYTES);
  renew_machine_id();
  write_identity();
}

/* Payload: u32 generation | the id, without an end. */
static void take_identity(const uint8_t *payload, size_t length) {
  if (length < 5 || length - 4 > MAX_SANDBOX_ID_BYTES) return;
  identity.generation = get_u32(payload);
  memcpy(identity.sandbox_id, payload + 4, length - 4);
  identity.sandbox_id[length - 4] = '\0';
  renew_machine_id();
}

#endif
