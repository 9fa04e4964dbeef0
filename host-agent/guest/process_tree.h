/* Which processes exist and who descends from whom, read from /proc: exact because every keeper is a subreaper. */
#ifndef SANDGATE_PROCESS_TREE_H
#define SANDGATE_PROCESS_TREE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "process_stat.h"

#define MAX_PROCESSES 4096

/* Processes that existed at one moment. A pid in it that started later was reused and does not count. */
struct mark {
  bool set;
  uint64_t ticks;
  uint32_t count;
  pid_t *pids; /* room for MAX_PROCESSES */
};

static int proc_fd = -1;
static pid_t listed_pids[MAX_PROCESSES];
static struct process processes[MAX_PROCESSES];
static uint32_t process_count;
static bool scan_torn; /* a process or a parent vanished while it was read: a scan that found nothing proves nothing */

static uint64_t now_ticks(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (uint64_t)now.tv_sec * 100 + (uint64_t)now.tv_nsec / 10000000;
}

static uint32_t list_pids(pid_t *pids) {
  static uint8_t entries[32 * 1024];
  uint32_t count = 0;
  if (proc_fd < 0) proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (proc_fd < 0 || lseek(proc_fd, 0, SEEK_SET) < 0) return 0;
  for (;;) {
    long got = syscall(SYS_getdents64, proc_fd, entries, sizeof entries);
    if (got <= 0) return count;
    for (long at = 0; at < got;) {
      /* struct dirent64 of the kernel: u64 inode, s64 offset, u16 record length, u8 type, name */
      uint16_t record_bytes;
      memcpy(&record_bytes, entries + at + 16, sizeof record_bytes);
      const char *name = (const char *)entries + at + 19;
      if (name[0] >= '1' && name[0] <= '9' && count < MAX_PROCESSES) pids[count++] = (pid_t)atoi(name);
      at += record_bytes;
    }
  }
}

static void scan_processes(void) {
  uint32_t listed = list_pids(listed_pids);
  drop_stat_files_but_of(listed_pids, listed);
  process_count = 0;
  scan_torn = false;
  for (uint32_t i = 0; i < listed; i++) {
    if (read_process(listed_pids[i], &processes[process_count]))
      process_count++;
    else
      scan_torn = true;
  }
}

/* Keeps nothing of processes that have ended. */
static void forget_ended(void) { drop_stat_files_but_of(listed_pids, list_pids(listed_pids)); }

static const struct process *find_process(pid_t pid) {
  for (uint32_t i = 0; i < process_count; i++)
    if (processes[i].pid == pid) return &processes[i];
  return NULL;
}

/* Bounded walk up: parents read at different moments could form a circle. */
static bool descends_from(const struct process *process, pid_t ancestor) {
  for (uint32_t depth = 0; process != NULL && depth < MAX_PROCESSES; depth++) {
    if (process->parent == ancestor) return true;
    if (process->parent <= 1) return false;
    process = find_process(process->parent);
  }
  scan_torn = true;
  return false;
}

static void take_mark(struct mark *mark) {
  mark->count = list_pids(mark->pids);
  mark->ticks = now_ticks();
  mark->set = true;
}

static bool existed_at(const struct mark *mark, const struct process *process) {
  if (!mark->set || process->start_ticks > mark->ticks + 1) return false;
  for (uint32_t i = 0; i < mark->count; i++)
    if (mark->pids[i] == process->pid) return true;
  return false;
}

#endif
