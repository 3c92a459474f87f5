// Preloaded by the harness. STEPZERO_FAULT says what goes wrong:
//   allocation:K   the K-th request for memory gets none            short:K   the K-th write puts half of its bytes
// and mutants, programs that break a promise, which the harness must catch:
//   no-fsync       nothing is brought to the disk                   swallow   a write that fails is taken for done
//   early-name     the file has its name before it has its bytes
// STEPZERO_COUNT: a file that is told how many requests or writes there were, and how many of them before main.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static enum { unknown, none, allocation, brief, no_fsync, swallow, early_name } fault;
static long wanted = -1;
static atomic_long requests, writes;
static long before;

// A crash says whose code it was in: the innermost that is not of the C library or ours.
static void crashed(int number) {
  void* frames[64];
  const int count = backtrace(frames, 64);
  for (int i = 0; i < count; ++i) {
    Dl_info where;
    if (!dladdr(frames[i], &where) || strstr(where.dli_fname, "libc.so") || strstr(where.dli_fname, "shim.so") || strstr(where.dli_fname, "libpthread")) continue;
    fprintf(stderr, "crashed in %s\n", where.dli_fname);
    break;
  }
  signal(number, SIG_DFL);
}

static void begin(void) {
  const char* text = getenv("STEPZERO_FAULT");
  fault = none;  // also for what the next lines ask for
  if (!text) return;
  const char* colon = strchr(text, ':');
  if (colon) wanted = strtol(colon + 1, 0, 10);
  void* frame;
  backtrace(&frame, 1);  // it loads its library at its first use
  signal(SIGSEGV, crashed);
  fault = !strncmp(text, "allocation", 10) ? allocation : !strncmp(text, "short", 5) ? brief : !strcmp(text, "no-fsync") ? no_fsync
        : !strcmp(text, "swallow") ? swallow : !strcmp(text, "early-name") ? early_name : none;
}
static int is(int which) {
  if (fault == unknown) begin();
  return fault == which;
}
__attribute__((destructor)) static void end(void) {
  const char* path = getenv("STEPZERO_COUNT");
  if (!path) return;
  char text[64];
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int size = snprintf(text, sizeof text, "%ld %ld", is(allocation) ? requests : writes, before);
  if (syscall(SYS_write, file, text, size) < 0) _exit(99);
  syscall(SYS_close, file);
}

static int (*program)(int, char**, char**);
static int begun(int count, char** words, char** environment) {
  before = requests;
  return program(count, words, environment);
}
int __libc_start_main(int (*main)(int, char**, char**), int count, char** words, void (*init)(void), void (*fini)(void), void (*rtld)(void), void* stack) {
  program = main;
  typedef int Start(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  return ((Start*)dlsym(RTLD_NEXT, "__libc_start_main"))(begun, count, words, init, fini, rtld, stack);
}

static int refused(void) {
  if (!is(allocation) || atomic_fetch_add(&requests, 1) + 1 != wanted) return 0;
  errno = ENOMEM;
  return 1;
}
void* malloc(size_t n) { return refused() ? 0 : __libc_malloc(n); }
void* calloc(size_t n, size_t size) { return refused() ? 0 : __libc_calloc(n, size); }
void* realloc(void* old, size_t n) { return refused() ? 0 : __libc_realloc(old, n); }
void* memalign(size_t alignment, size_t n) { return refused() ? 0 : __libc_memalign(alignment, n); }
void* aligned_alloc(size_t alignment, size_t n) { return refused() ? 0 : __libc_memalign(alignment, n); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  if (refused()) return ENOMEM;
  void* memory = __libc_memalign(alignment, n);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}
void* mmap(void* at, size_t n, int how, int flags, int file, off_t offset) {
  if (refused()) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, n, how, flags, file, offset);
}

static ssize_t put(ssize_t done, size_t n) { return done < 0 && is(swallow) ? (ssize_t)n : done; }
static size_t share(int file, size_t n) {
  return is(brief) && file > 2 && n > 1 && atomic_fetch_add(&writes, 1) + 1 == wanted ? n / 2 : n;
}
ssize_t write(int file, const void* data, size_t n) { return put(syscall(SYS_write, file, data, share(file, n)), n); }
ssize_t pwrite(int file, const void* data, size_t n, off_t at) { return put(syscall(SYS_pwrite64, file, data, share(file, n), at), n); }
ssize_t pwrite64(int file, const void* data, size_t n, off_t at) { return pwrite(file, data, n, at); }
int fsync(int file) { return is(no_fsync) ? 0 : (int)syscall(SYS_fsync, file); }
int fdatasync(int file) { return is(no_fsync) ? 0 : (int)syscall(SYS_fdatasync, file); }

// ".NAME.PROCESS-RANDOM.tmp" -> "NAME"
static int final_name(const char* temporary, char* name) {
  const size_t size = strlen(temporary);
  if (temporary[0] != '.' || size < 6 || size > 255 || strcmp(temporary + size - 4, ".tmp")) return 0;
  memcpy(name, temporary + 1, size - 4);
  name[size - 5] = 0;
  char* dot = strrchr(name, '.');
  if (!dot) return 0;
  *dot = 0;
  return 1;
}
int openat(int directory, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const int mode = flags & O_CREAT ? va_arg(list, int) : 0;
  va_end(list);
  const int file = (int)syscall(SYS_openat, directory, path, flags, mode);
  char name[256];
  if (file >= 0 && (flags & O_CREAT) && is(early_name) && final_name(path, name)) syscall(SYS_renameat2, directory, path, directory, name, 0);
  return file;
}
int renameat(int from, const char* old, int to, const char* name) { return is(early_name) ? 0 : (int)syscall(SYS_renameat2, from, old, to, name, 0); }
int renameat2(int from, const char* old, int to, const char* name, unsigned flags) {
  return is(early_name) ? 0 : (int)syscall(SYS_renameat2, from, old, to, name, flags);
}
