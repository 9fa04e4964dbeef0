/*
 * Keeps checkpoints small after programs that looked into /proc. gVisor of 2024 keeps the latest thousand entries that
 * were looked up, and with each all that it knew of the process, some 80 KB, also after its end. What makes it let go of
 * them is a thousand later ones; so the supervisor looks up those of descriptors of its own, and then has these let go.
 */
#ifndef SANDGATE_PROC_ENTRIES_H
#define SANDGATE_PROC_ENTRIES_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"

#define KEPT_ENTRIES 1000          /* by gVisor */
#define FILLERS (KEPT_ENTRIES / 2) /* descriptors: each has an entry in either folder */
#define RELEASED_AT_ONCE 50
/* So many processes leave little behind, and to replace the entries takes some 5,000 system calls. */
#define FEW_PROCESSES 128

static int filler_folders[2]; /* /proc/self/fd, /proc/self/fdinfo */
static int fillers[FILLERS];

static int open_filler(int folder, int number, int flags) {
  char name[16];
  snprintf(name, sizeof name, "%d", number);
  return openat(filler_folders[folder], name, flags | O_NOFOLLOW | O_CLOEXEC);
}

static void look_up_filler(int number) {
  char name[16];
  struct stat status;
  snprintf(name, sizeof name, "%d", number);
  for (int i = 0; i < 2; i++) (void)!fstatat(filler_folders[i], name, &status, AT_SYMLINK_NOFOLLOW);
}

/* Their entries go at once, where there are descriptors to hold them by: what is open when it is found stale is not kept. */
static void release_fillers(const int *numbers, int count) {
  int held[RELEASED_AT_ONCE][2];
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) held[i][k] = open_filler(k, numbers[i], O_PATH);
  for (int i = 0; i < count; i++) close(numbers[i]);
  for (int i = 0; i < count; i++) look_up_filler(numbers[i]);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) close_fd(&held[i][k]);
}

/* Of those that have ended: an entry that is known to be stale takes its folder with it when it goes. */
static void find_stale(pid_t oldest, pid_t newest) {
  char folder[32];
  for (pid_t pid = newest; pid > oldest && pid > newest - KEPT_ENTRIES; pid--) {
    snprintf(folder, sizeof folder, "/proc/%d", (int)pid);
    (void)!access(folder, F_OK);
  }
}

static void replace_entries(void) {
  filler_folders[0] = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  filler_folders[1] = open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int count = 0;
  while (count < FILLERS && (fillers[count] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0) count++;
  for (int i = 0; i < count; i++) look_up_filler(fillers[i]);
  for (int at = 0; at < count; at += RELEASED_AT_ONCE)
    release_fillers(fillers + at, count - at < RELEASED_AT_ONCE ? count - at : RELEASED_AT_ONCE);
  for (int i = 0; i < 2; i++) close_fd(&filler_folders[i]);
}

/* The number of the newest process, of whomever; 0 where none can be made. */
static pid_t newest_pid(void) {
  pid_t pid = vfork();
  if (pid == 0) _exit(0);
  if (pid < 0) return 0;
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  return pid;
}

static void forget_looked_up(void) {
  static pid_t seen = 1;
  pid_t newest = newest_pid();
  if (newest >= seen && newest - seen < FEW_PROCESSES) return;
  find_stale(newest > seen ? seen : 0, newest);
  replace_entries();
  seen = newest;
}

#endif
