/*
 * What /proc says of one process. Its file stays open as long as the process lives: gVisor of 2024 keeps a thousand entries
 * of /proc that nobody has open, with all that it knows of the processes behind them, long after those have ended, and
 * writes that into each checkpoint. An entry is let go of only where it is found to be stale first, and closed then.
 */
#ifndef SANDGATE_PROCESS_STAT_H
#define SANDGATE_PROCESS_STAT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "descriptors.h"

#define MAX_STAT_FILES 256 /* of the 1024 descriptors; processes beyond are read without keeping their file */

struct process {
  pid_t pid;
  pid_t parent;
  pid_t group;
  char state;
  int threads;
  uint64_t start_ticks;
};

struct stat_file {
  pid_t pid;
  int fd;
};

static struct stat_file stat_files[MAX_STAT_FILES];
static uint32_t stat_file_count;

/* The state is that of the first thread, which may have ended while others go on. */
static bool is_dead(const struct process *process) {
  return process->state == 'X' || (process->state == 'Z' && process->threads <= 1);
}

static struct stat_file *find_stat_file(pid_t pid) {
  for (uint32_t i = 0; i < stat_file_count; i++)
    if (stat_files[i].pid == pid) return &stat_files[i];
  return NULL;
}

/* Of a process that has ended; before that it would be opened in vain once more. */
static void drop_stat_file(struct stat_file *file) {
  char folder[32];
  snprintf(folder, sizeof folder, "/proc/%d", (int)file->pid);
  (void)!access(folder, F_OK); /* finds it stale */
  close(file->fd);
  *file = stat_files[--stat_file_count];
}

static void drop_stat_files_but_of(const pid_t *pids, uint32_t count) {
  for (uint32_t i = stat_file_count; i-- > 0;) {
    bool lives = false;
    for (uint32_t k = 0; k < count && !lives; k++) lives = pids[k] == stat_files[i].pid;
    if (!lives) drop_stat_file(&stat_files[i]);
  }
}

static bool parse_stat(const char *text, struct process *process) {
  /* The name, in parentheses, may itself hold parentheses and blanks: the fields start behind the last one. */
  const char *fields = strrchr(text, ')');
  int parent, group;
  unsigned long long start_ticks;
  if (fields == NULL ||
      sscanf(fields + 1, " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu",
             &process->state, &parent, &group, &process->threads, &start_ticks) != 5)
    return false;
  process->parent = (pid_t)parent;
  process->group = (pid_t)group;
  process->start_ticks = (uint64_t)start_ticks;
  return true;
}

static bool read_stat(int fd, struct process *process) {
  char text[1024];
  ssize_t got = pread(fd, text, sizeof text - 1, 0);
  if (got <= 0) return false;
  text[got] = '\0';
  return parse_stat(text, process);
}

static bool read_process(pid_t pid, struct process *process) {
  process->pid = pid;
  struct stat_file *file = find_stat_file(pid);
  if (file != NULL) {
    if (read_stat(file->fd, process) && process->state != 'X') return true;
    drop_stat_file(file); /* the number may be another's by now */
  }
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool read = read_stat(fd, process);
  if (!read || stat_file_count == MAX_STAT_FILES) {
    close(fd);
    return read;
  }
  note_fd(fd);
  stat_files[stat_file_count++] = (struct stat_file){.pid = pid, .fd = fd};
  return true;
}

#endif
