// The wheel's module on a glibc as old as 2.28 (manylinux_2_28), though it is linked with a newer one. The linker replaces each use of
// a function that is newer by __wrap_FUNCTION, also in the libraries inside (--wrap; python/CMakeLists.txt reads the names here).
#include <dlfcn.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

// FUNCTION has moved to another library, or changed what no caller here sees: its older VERSION is there, too.
#define OLDER(FUNCTION, VERSION)                                                               \
  asm(".symver older_" #FUNCTION ", " #FUNCTION "@GLIBC_" VERSION "\n.globl __wrap_" #FUNCTION \
      "\n.type __wrap_" #FUNCTION ", @function\n__wrap_" #FUNCTION ": jmp older_" #FUNCTION "@PLT\n");
OLDER(__pthread_key_create, "2.2.5")
OLDER(dladdr, "2.2.5")
OLDER(dladdr1, "2.3.3")
OLDER(dlclose, "2.2.5")
OLDER(dlerror, "2.2.5")
OLDER(dlopen, "2.2.5")
OLDER(dlsym, "2.2.5")
OLDER(exp, "2.2.5")
OLDER(exp2, "2.2.5")
OLDER(log, "2.2.5")
OLDER(pow, "2.2.5")
OLDER(pthread_condattr_setclock, "2.3.3")
OLDER(pthread_create, "2.2.5")
OLDER(pthread_detach, "2.2.5")
OLDER(pthread_getaffinity_np, "2.3.4")
OLDER(pthread_getspecific, "2.2.5")
OLDER(pthread_join, "2.2.5")
OLDER(pthread_key_create, "2.2.5")
OLDER(pthread_key_delete, "2.2.5")
OLDER(pthread_kill, "2.2.5")
OLDER(pthread_mutex_trylock, "2.2.5")
OLDER(pthread_mutexattr_destroy, "2.2.5")
OLDER(pthread_mutexattr_init, "2.2.5")
OLDER(pthread_mutexattr_settype, "2.2.5")
OLDER(pthread_once, "2.2.5")
OLDER(pthread_rwlock_destroy, "2.2.5")
OLDER(pthread_rwlock_init, "2.2.5")
OLDER(pthread_rwlock_rdlock, "2.2.5")
OLDER(pthread_rwlock_unlock, "2.2.5")
OLDER(pthread_rwlock_wrlock, "2.2.5")
OLDER(pthread_setaffinity_np, "2.3.4")
OLDER(pthread_setname_np, "2.12")
OLDER(pthread_setspecific, "2.2.5")
OLDER(pthread_sigmask, "2.2.5")

extern "C" {

// What <sys/stat.h> called before 2.33, with the version of struct stat.
asm(".symver older_fxstat, __fxstat@GLIBC_2.2.5");
asm(".symver older_fxstatat, __fxstatat@GLIBC_2.4");
asm(".symver older_lxstat, __lxstat@GLIBC_2.2.5");
asm(".symver older_xstat, __xstat@GLIBC_2.2.5");
int older_fxstat(int version, int file, struct stat* to);
int older_fxstatat(int version, int folder, const char* path, struct stat* to, int flags);
int older_lxstat(int version, const char* path, struct stat* to);
int older_xstat(int version, const char* path, struct stat* to);
int __wrap_fstat(int file, struct stat* to) { return older_fxstat(1, file, to); }
int __wrap_fstat64(int file, struct stat* to) { return older_fxstat(1, file, to); }
int __wrap_fstatat(int folder, const char* path, struct stat* to, int flags) {
  return older_fxstatat(1, folder, path, to, flags);
}
int __wrap_lstat(const char* path, struct stat* to) { return older_lxstat(1, path, to); }
int __wrap_lstat64(const char* path, struct stat* to) { return older_lxstat(1, path, to); }
int __wrap_stat(const char* path, struct stat* to) { return older_xstat(1, path, to); }
int __wrap_stat64(const char* path, struct stat* to) { return older_xstat(1, path, to); }

pid_t __wrap_gettid() { return static_cast<pid_t>(syscall(SYS_gettid)); }
int __wrap_close_range(unsigned first, unsigned last, int flags) {
  return static_cast<int>(syscall(SYS_close_range, first, last, flags));
}

uint32_t __wrap_arc4random() {
  uint32_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) abort();  // only without the system call, which is older
  return random;
}

// Whether no thread has been started, for which libstdc++ leaves atomics out.
char __wrap___libc_single_threaded = 0;

// Of 2.30. Elsewhere a wait by the steady clock becomes one by the real time, which somebody may set meanwhile.
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto wait = reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (wait) return wait(condition, mutex, clock, until);
  timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t left = (until->tv_sec - now.tv_sec) * kSecond + until->tv_nsec - now.tv_nsec;
  const int64_t end = real.tv_nsec + (left > 0 ? left : 0);
  real.tv_sec += end / kSecond;
  real.tv_nsec = end % kSecond;
  return pthread_cond_timedwait(condition, mutex, &real);
}

}  // extern "C"
